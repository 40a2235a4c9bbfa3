require "active_record"

ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE_URL"))

class Order < ActiveRecord::Base
end

class ShipJob
  BUSY = [8] # the orders for which the carrier is busy at first

  def perform(id)
    if BUSY.delete(id)
      puts "order #{id}: the carrier is busy"
      raise "the carrier is busy"
    end
    Order.find(id).update!(shipped: true)
    puts "shipped order #{id}"
  end
end

class ReviewJob
  def perform(id)
    puts "asked for a review of order #{id}"
  end
end

# Runs a statement without the query cache.
def query(statement, *values)
  ActiveRecord::Base.connection.exec_query(statement, "Posthaste", values)
end
