#!lua
-- Marks a queue as one that is being dropped: its number is not given again and
-- nobody finds it, until its keys are gone and it is removed.
-- keys: 1 the registry of queues
-- args: 1 its name; 2 "1" to remove it in the end
-- returns: 0 if there is none, else its number
-- cost: two commands
local value = redis.call('HGET', KEYS[1], ARGV[1])
if not value then return 0 end
if ARGV[2] == '1' then
  if string.sub(value, 1, 1) == '-' then redis.call('HDEL', KEYS[1], ARGV[1]) end
elseif string.sub(value, 1, 1) ~= '-' then
  redis.call('HSET', KEYS[1], ARGV[1], '-' .. value)
end
return tonumber(string.match(value, '^%-?(%d+) '))
