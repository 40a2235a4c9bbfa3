#!lua flags=allow-oom
-- Forgets messages whose retention has ended, also if no message is settled any more.
-- keys: of the subscription
-- args: number of the subscription; rules; most, the maximum to forget
-- returns: "gone", or the number of forgotten messages
-- cost: two commands if there are none; some six per message
local number, rules, most = unpack(ARGV)
-- includes: keys, rules, keyed, words, holders, notes, ended
local own = call('HMGET', TALLY, 'no', 'first')
if own[1] ~= number or own[2] then return 'gone' end
local first = tonumber(string.match(call('LINDEX', PAST, 0) or '', '^%d+') or nil)
if not first or first > now - rules.r then return 0 end
return forget(0, tonumber(most))
