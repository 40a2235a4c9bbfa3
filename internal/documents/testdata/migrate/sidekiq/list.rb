# Prints all jobs as Sidekiq sees them, oldest first.
require "sidekiq/api"

def show(set, job, queue, at)
  error = "#{job["error_class"]}: #{job["error_message"]}" if job["error_class"]
  puts({ set: set, queue: queue, jid: job.jid, kind: job["wrapped"] || job.klass, args: job["args"].to_json, at: at, error: error }.to_json)
end

Sidekiq::Queue.all.each do |queue|
  queue.to_a.reverse.each { |job| show("queue", job, queue.name, nil) }
end
{ "schedule" => Sidekiq::ScheduledSet, "retry" => Sidekiq::RetrySet, "dead" => Sidekiq::DeadSet }.each do |name, set|
  set.new.sort_by { |job| [job.score, job.value] }.each { |job| show(name, job, job.queue, job.score) }
end
