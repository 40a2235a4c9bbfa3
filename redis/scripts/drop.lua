#!lua flags=allow-oom
-- Marks a queue as being dropped: its number is not given to another queue, and no call
-- finds it, until its keys are gone and the mark is removed. Marking a queue also removes the
-- schedules that send to it.
-- keys: QUEUES, the registry; SCHEDULES; TICKS, their next ticks
-- args: name of the queue; created: "" marks the queue, its time of creation removes it; then
--       the fields of its further subscriptions
-- returns: 0 if there is no such queue, else its time of creation, negative if created is ""
--          and the queue was marked before
-- cost: two commands; for a mark also as many as there are schedules
local QUEUES, SCHEDULES, TICKS = unpack(KEYS)
local name, created = unpack(ARGV, 1, 2)
local value = redis.call('HGET', QUEUES, name)
if not value then return 0 end
local mark, made = string.match(value, '^(%-?)%d+ (%d+) ')
if created == '' then
  if mark == '' then
    redis.call('HSET', QUEUES, name, '-' .. value)
    local schedules = redis.call('HGETALL', SCHEDULES)
    for i = 1, #schedules, 2 do
      if string.match(schedules[i + 1], '^%S+') == name then
        redis.call('HDEL', SCHEDULES, schedules[i])
        redis.call('ZREM', TICKS, schedules[i])
      end
    end
  end
elseif mark == '-' and made == created then
  redis.call('HDEL', QUEUES, name, unpack(ARGV, 3))
end
if created == '' and mark == '-' then return -tonumber(made) end
return tonumber(made)
