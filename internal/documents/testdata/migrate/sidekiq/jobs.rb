# Jobs that a real Sidekiq leaves in each of its sets.
require "active_job"
require "sidekiq"

ActiveJob::Base.queue_adapter = :sidekiq
ActiveJob::Base.logger = nil

class HardJob
  include Sidekiq::Job
  sidekiq_options queue: "bulk" # no process works on it
  def perform(*); end
end

class RetriedJob
  include Sidekiq::Job
  sidekiq_options retry: 5
  sidekiq_retry_in { 3600 }
  def perform(*) = raise(ArgumentError, "Straße unbekannt")
end

class DoomedJob
  include Sidekiq::Job
  sidekiq_options retry: 0
  def perform(*) = raise("it broke for good")
end

class SlowJob
  include Sidekiq::Job
  def perform(*) = sleep
end

class MailJob < ActiveJob::Base
  queue_as "Mailers"
  def perform(*); end
end
