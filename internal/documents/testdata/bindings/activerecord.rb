# Checks what docs/guides/ruby.md says about ActiveRecord.
require "active_record"
require "json"

ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE_URL"))

def payload(id) = { order: id }.to_json

def send_message(id)
  ActiveRecord::Base.connection.exec_query("select posthaste.send('orders', $1)", "Send order", [payload(id)])
end

# The orders of all messages, oldest first.
def sent
  ActiveRecord::Base.connection.select_values("select (convert_from(payload, 'UTF8')::json->>'order')::int from posthaste.messages order by message_id")
end

def expect(what, want)
  before = sent
  yield
  got = sent.drop(before.size)
  raise "#{what}: sent #{got}, want #{want}" unless got == want
end

class Order < ActiveRecord::Base
end

class OrderWithCallbacks < ActiveRecord::Base
  self.table_name = "orders"
  after_create { send_message(id) if self.class.connection.transaction_open? }
  after_commit { send_message(-id) unless self.class.connection.transaction_open? }
end

expect("exec_query in a request", [1, 1]) do
  ActiveRecord::Base.cache { 2.times { send_message(1) } }
end
expect("select_value in a request", [2]) do
  ActiveRecord::Base.cache do
    2.times { ActiveRecord::Base.connection.select_value("select posthaste.send('orders', '#{payload(2)}')") }
  end
end
expect("a transaction that rolls back", []) do
  Order.transaction do
    send_message(3)
    raise ActiveRecord::Rollback
  end
end
expect("a rollback in a nested transaction", [4, 5]) do
  Order.transaction do
    send_message(4)
    Order.transaction do
      send_message(5)
      raise ActiveRecord::Rollback
    end
  end
end
expect("a rollback to a savepoint", [6]) do
  Order.transaction do
    send_message(6)
    Order.transaction(requires_new: true) do
      send_message(7)
      raise ActiveRecord::Rollback
    end
  end
end
expect("callbacks", [8, -8]) { OrderWithCallbacks.create!(id: 8, item: "lamp") }
expect("callbacks of a transaction that rolls back", []) do
  Order.transaction do
    OrderWithCallbacks.create!(id: 9, item: "lamp")
    raise ActiveRecord::Rollback
  end
end
puts "all calls work"
