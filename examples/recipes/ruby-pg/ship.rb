require "json"
require "pg"

# Outside of db.transaction each statement is a transaction of its own.
db = PG.connect(ENV.fetch("DATABASE_URL"))

# The order and its message commit together.
db.transaction do
  db.exec_params("insert into orders (id, item) values ($1, $2)", [7, "lamp"])
  db.exec_params("select posthaste.send('orders', $1, $2)", [{ order: 7 }.to_json, { reference: "order-7" }.to_json])
end

loop do
  messages = db.exec("select delivery_id, payload_json from posthaste.receive('orders', 10, '1 minute')")
  break if messages.none?

  messages.each do |message|
    order = JSON.parse(message["payload_json"])["order"]
    # The shipment and the acknowledgment commit together.
    db.transaction do
      db.exec_params("insert into shipments (order_id) values ($1)", [order])
      db.exec_params("select posthaste.ack($1, $2)", [message["delivery_id"], { strict: true }.to_json])
    end
    puts "shipped order #{order}"
  rescue StandardError => e
    db.exec_params("select posthaste.fail($1, $2)", [message["delivery_id"], e.message])
  end
end
