require "active_record"
require "json"

ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE_URL"))

class Order < ActiveRecord::Base
end

class Shipment < ActiveRecord::Base
end

# Runs a statement without the query cache.
def query(statement, *values)
  ActiveRecord::Base.connection.exec_query(statement, "Posthaste", values)
end

# The order and its message commit together.
Order.transaction do
  order = Order.create!(id: 7, item: "lamp")
  query("select posthaste.send('orders', $1, $2)", { order: order.id }.to_json, { reference: "order-7" }.to_json)
end

while (messages = query("select delivery_id, payload_json from posthaste.receive('orders', 10, '1 minute')")).any?
  messages.each do |message|
    order = JSON.parse(message["payload_json"])["order"]
    # The shipment and the acknowledgment commit together.
    Shipment.transaction do
      Shipment.create!(order_id: order)
      query("select * from posthaste.ack($1, $2)", message["delivery_id"], { strict: true }.to_json)
    end
    puts "shipped order #{order}"
  rescue StandardError => e
    query("select * from posthaste.fail($1, $2)", message["delivery_id"], e.message)
  end
end
