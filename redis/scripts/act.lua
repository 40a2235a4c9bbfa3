#!lua flags=allow-oom
-- Records what an operator did. The last 10,000 are kept.
-- keys: 1 the list of actions
-- args: the actions, as JSON without id and time
-- returns: how many
-- cost: four commands, and one per action
local call = redis.call
local clock = call('TIME')
local now = (clock[1] - 1735689600) * 1000000 + clock[2]
local last = tonumber(string.match(call('LINDEX', KEYS[1], 0) or '', '^(%d+) ') or 0)
for i = 1, #ARGV do
  last = math.max(last + 1, now)
  call('LPUSH', KEYS[1], string.format('%.0f %s', last, ARGV[i]))
end
call('LTRIM', KEYS[1], 0, 9999)
return #ARGV
