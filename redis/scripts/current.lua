-- A caller that does not know all subscriptions of the queue gets "gone" and reads them again.
if call('HGET', TALLY, 'no') ~= number or (call('HGET', META, 'readers') or nil) ~= rules.v then return 'gone' end
