#!lua flags=allow-oom
-- Records actions of operators. Keeps the last 10,000.
-- keys: ACTIONS, the list
-- args: the actions, as JSON without id and time
-- returns: the number of actions
-- cost: four commands, and one per action
local ACTIONS = unpack(KEYS)
local call = redis.call
local clock = call('TIME')
local now = (clock[1] - 1735689600) * 1000000 + clock[2]
local last = tonumber(string.match(call('LINDEX', ACTIONS, 0) or '', '^(%d+) ') or 0)
for i = 1, #ARGV do
  last = math.max(last + 1, now)
  call('LPUSH', ACTIONS, string.format('%.0f %s', last, ARGV[i]))
end
call('LTRIM', ACTIONS, 0, 9999)
return #ARGV
