#!lua flags=allow-oom
-- Keeps schedules. Who changes one reads it, and puts it back if nobody else has
-- changed it meanwhile (schedule.go): the name of its queue, a blank, and what this script
-- does not look into.
-- keys: 1 the schedules; 2 their next ticks; 3 the registry of queues
-- args: 1 what to do: "read", then names, none for all; "due", 2 how many at most; "drop",
--       2 the name; or "set", 2 the name, 3 the schedule as it was read, "" if there was
--       none, 4 as it is to be, 5 its next tick in µs or "", 6 the number of its queue and
--       when that was made, if it is put: then the queue must be there, and no tick of
--       the schedule be due, which another may be sending to the queue that it had
-- returns: read and due: the time in µs, µs until the next tick of all or "", and per
--       schedule its name and it; drop: how many; set: "ok", "changed", "due", or "gone"
--       (the queue)
-- cost: at most four commands, as many bytes as the schedules have that are read or set;
--       read of all as many as there are
local call = redis.call
local clock = call('TIME')
local now = (clock[1] - 1735689600) * 1000000 + clock[2]
local function text(n) return string.format('%.0f', n) end
local what, name = ARGV[1], ARGV[2]
if what == 'drop' then
  call('ZREM', KEYS[2], name)
  return call('HDEL', KEYS[1], name)
elseif what == 'set' then
  if (call('HGET', KEYS[1], name) or '') ~= ARGV[3] then return 'changed' end
  if ARGV[6] then
    local queue = call('HGET', KEYS[3], string.match(ARGV[4], '^%S+'))
    if not queue or string.match(queue, '^(%d+ %d+) ') ~= ARGV[6] then return 'gone' end
    if tonumber(call('ZSCORE', KEYS[2], name) or now + 1) <= now then return 'due' end
  end
  call('HSET', KEYS[1], name, ARGV[4])
  if ARGV[5] == '' then
    call('ZREM', KEYS[2], name)
  else
    call('ZADD', KEYS[2], ARGV[5], name)
  end
  return 'ok'
end
local first = tonumber(call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2])
local all = {text(now), first and text(first - now) or ''}
if what == 'read' and not name then
  for _, word in ipairs(call('HGETALL', KEYS[1])) do all[#all + 1] = word end
  return all
end
local names = {}
if what == 'due' then
  names = call('ZRANGE', KEYS[2], '-inf', text(now), 'BYSCORE', 'LIMIT', 0, ARGV[2])
else
  for i = 2, #ARGV do names[i - 1] = ARGV[i] end
end
for _, each in ipairs(names) do
  local is = call('HGET', KEYS[1], each)
  if is then
    all[#all + 1] = each
    all[#all + 1] = is
  end
end
return all
