-- A caller that does not know all subscriptions of the queue, or has older options, gets "gone"
-- and reads them again.
local known = call('HMGET', META, 'readers', 'rev')
if call('HGET', TALLY, 'no') ~= number or (known[1] or nil) ~= rules.v or (known[2] or nil) ~= rules.w then return 'gone' end
