require_relative "jobs"

$stdout.sync = true
JOBS = [ShipJob, ReviewJob].to_h { |job| [job.name, job] }

# A service would go on. This program ends with the order.
until Order.find(8).shipped
  messages = query("select delivery_id, kind, payload_json from posthaste.receive('default', 10, '1 minute')")
  messages.each do |message|
    # The effects of the job and the acknowledgment commit together.
    Order.transaction do
      JOBS.fetch(message["kind"]).new.perform(*JSON.parse(message["payload_json"]))
      query("select * from posthaste.ack($1, $2)", message["delivery_id"], { strict: true }.to_json)
    end
  rescue StandardError => e
    query("select * from posthaste.fail($1, $2)", message["delivery_id"], "#{e.class}: #{e.message}")
  end
  sleep 0.5 if messages.empty?
end
