#!lua flags=allow-oom
-- Marks a queue as one that is being dropped: its number is not given again and
-- nobody finds it, until its keys are gone and it is removed. The schedules that send to
-- it end with that.
-- keys: 1 the registry of queues; 2 the schedules (schedule.lua); 3 their next ticks
-- args: 1 its name; 2 "" to mark it, or when it was created to remove it in the end, and
--       then the fields of its further subscriptions
-- returns: 0 if there is none, else when it was created
-- cost: two commands; to mark it as many more as there are schedules
local value = redis.call('HGET', KEYS[1], ARGV[1])
if not value then return 0 end
local mark, created = string.match(value, '^(%-?)%d+ (%d+) ')
if ARGV[2] == '' then
  if mark == '' then
    redis.call('HSET', KEYS[1], ARGV[1], '-' .. value)
    local schedules = redis.call('HGETALL', KEYS[2])
    for i = 1, #schedules, 2 do
      if string.match(schedules[i + 1], '^%S+') == ARGV[1] then
        redis.call('HDEL', KEYS[2], schedules[i])
        redis.call('ZREM', KEYS[3], schedules[i])
      end
    end
  end
elseif mark == '-' and created == ARGV[2] then
  redis.call('HDEL', KEYS[1], ARGV[1], unpack(ARGV, 3))
end
return tonumber(created)
