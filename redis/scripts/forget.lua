#!lua flags=allow-oom
-- Forgets messages whose retention has ended, also if no message is settled any more. Of a queue
-- that has no retention any more it forgets those that are too many.
-- keys: of the subscription
-- args: number of the subscription; rules; most, the maximum to forget
-- returns: "gone", or the number of forgotten messages
-- cost: three commands if there are none; some six per message
local number, rules, most = unpack(ARGV)
-- includes: keys, rules, keyed, words, holders, apart, notes, ended
local own = call('HMGET', TALLY, 'no', 'first')
if own[1] ~= number or own[2] or (call('HGET', META, 'rev') or nil) ~= rules.w then return 'gone' end
if rules.r > 0 then
  local first = call('LINDEX', PAST, 0)
  if not first or settledAt(first) > now - rules.r then return 0 end
end
return forget(0, tonumber(most))
