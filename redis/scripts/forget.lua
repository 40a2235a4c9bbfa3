#!lua flags=allow-oom
-- Forgets what was kept for as long as the queue's retention says, also where nothing is
-- settled any more.
-- keys: of the queue
-- args: 1 the queue's number; 2 its rules (rules.lua); 3 the most
-- returns: "gone", or how many it forgot
-- cost: two commands where there is nothing; some six per message
-- includes: keys, rules, keyed, words, holders, ended
local own = call('HMGET', TALLY, 'no', 'first')
if own[1] ~= ARGV[1] or own[2] then return 'gone' end
local first = tonumber(string.match(call('LINDEX', PAST, 0) or '', '^%d+') or nil)
if not first or first > now - rules.r then return 0 end
return forget(0, tonumber(ARGV[3]))
