-- Only who knows all subscriptions of the queue goes on: "gone" lets him look anew.
if call('HGET', TALLY, 'no') ~= ARGV[1] or (call('HGET', META, 'readers') or nil) ~= rules.v then return 'gone' end
