#!lua flags=allow-oom
-- Makes a queue known, or a further subscription of one. Its number becomes the low
-- bits of its ids (ids.go).
-- keys: 1 the registry of queues
-- args: 1 its name, of a subscription the queue's, a colon and its own; 2 its options as
--       JSON; 3 how many numbers there are
-- returns: "exists", "full", or its number and when it was created
-- cost: five commands; once all numbers were used, as many as there are queues
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return 'exists' end
local clock = redis.call('TIME')
local last = tonumber(redis.call('HGET', KEYS[1], '#made') or 0)
local now = string.format('%.0f', math.max(last + 1, (clock[1] - 1735689600) * 1000000 + clock[2]))
redis.call('HSET', KEYS[1], '#made', now)
local most = tonumber(ARGV[3])
local next = tonumber(redis.call('HGET', KEYS[1], '#next') or 1)
local number = next
if next > most then
  local used = {}
  for _, value in ipairs(redis.call('HVALS', KEYS[1])) do
    local n = string.match(value, '^%-?(%d+) ')
    if n then used[tonumber(n)] = true end
  end
  -- Around, for who has not heard yet that the last of a number was dropped, and the
  -- dedupe keys of that, must not meet the next one of it.
  local tried = 0
  repeat
    if tried == most then return 'full' end
    number = (next + tried - 1) % most + 1
    tried = tried + 1
  until not used[number]
  next = next + tried - 1
end
redis.call('HSET', KEYS[1], '#next', next + 1)
local given = number .. ' ' .. now
redis.call('HSET', KEYS[1], ARGV[1], given .. ' ' .. ARGV[2])
return given
