#!lua flags=allow-oom
-- Adds a queue, or a further subscription of one, to the registry. Its number becomes the
-- low bits of its ids (ids.go).
-- keys: QUEUES, the registry
-- args: name of the queue, for a subscription followed by a colon and the subscription's
--       name; options as JSON; most, the count of numbers
-- returns: "exists", "full", or the number and the time of creation
-- cost: five commands; once all numbers have been used, as many more as there are queues
local QUEUES = unpack(KEYS)
local name, options, most = unpack(ARGV)
if redis.call('HEXISTS', QUEUES, name) == 1 then return 'exists' end
local clock = redis.call('TIME')
local last = tonumber(redis.call('HGET', QUEUES, '#made') or 0)
local now = string.format('%.0f', math.max(last + 1, (clock[1] - 1735689600) * 1000000 + clock[2]))
redis.call('HSET', QUEUES, '#made', now)
local most = tonumber(most)
local next = tonumber(redis.call('HGET', QUEUES, '#next') or 1)
local number = next
if next > most then
  local used = {}
  for _, value in ipairs(redis.call('HVALS', QUEUES)) do
    local n = string.match(value, '^%-?(%d+) ')
    if n then used[tonumber(n)] = true end
  end
  -- Take numbers in turn: processes that have not seen a drop yet, and the dedupe keys of
  -- the dropped queue, must not meet another queue of its number.
  local tried = 0
  repeat
    if tried == most then return 'full' end
    number = (next + tried - 1) % most + 1
    tried = tried + 1
  until not used[number]
  next = next + tried - 1
end
redis.call('HSET', QUEUES, '#next', next + 1)
local given = number .. ' ' .. now
redis.call('HSET', QUEUES, name, given .. ' ' .. options)
return given
