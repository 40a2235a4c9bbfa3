require_relative "jobs"

# The jobs are enqueued after the commit: a crash in between loses them.
order = Order.create!(id: 7)
ShipJob.perform_async(order.id)
ReviewJob.perform_in(3600, order.id)
