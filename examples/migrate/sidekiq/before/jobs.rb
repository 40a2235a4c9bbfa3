require "active_record"
require "sidekiq"

ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE_URL"))

class Order < ActiveRecord::Base
end

class ShipJob
  include Sidekiq::Job
  sidekiq_options retry: 4
  sidekiq_retry_in { 1 }

  BUSY = [7] # the orders for which the carrier is busy at first

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
  include Sidekiq::Job

  def perform(id)
    puts "asked for a review of order #{id}"
  end
end
