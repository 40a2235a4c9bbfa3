require_relative "jobs"

def enqueue(job, *args, **options)
  query("select posthaste.send('default', $1, $2)", args.to_json, { kind: job.name, **options }.to_json)
end

# The order and its messages commit together.
Order.transaction do
  order = Order.create!(id: 8)
  enqueue(ShipJob, order.id, max_attempts: 5)
  enqueue(ReviewJob, order.id, delay: "1h")
end
