require_relative "jobs"

2.times { |i| SlowJob.perform_async(i) } # first, so that they run while the others fail
20.times { |i| RetriedJob.perform_async(i, { "to" => ["Ada", nil, 1.5] }) }
10.times { |i| DoomedJob.perform_async(i) }
HardJob.perform_bulk(Array.new(600) { |i| ["bob", i] })
30.times { |i| HardJob.perform_in(3600 + i, "later", i) }
5.times do |i|
  MailJob.perform_later("welcome", i)
  MailJob.set(wait: 3600).perform_later("reminder", i)
end
