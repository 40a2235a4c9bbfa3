#!lua flags=allow-oom
-- Stores schedules. A client that changes a schedule reads it and writes it back, unless
-- it has changed since (schedule.go). A schedule is stored as the name of its queue, a blank,
-- and JSON that this script does not read.
-- keys: SCHEDULES; TICKS, their next ticks; QUEUES, the registry
-- args: what to do, and what it needs ("" otherwise):
--       "read": returns the schedules whose names follow, or all
--       "due": returns most due schedules at most
--       "drop": removes the schedule name
--       TICKS also has ends of pauses, as "#" and a member of the list of pauses (pause_index.lua),
--       which are returned as names, with an empty text
--       "set": stores the schedule name: before as it was read ("" if there was none), after as
--       it becomes, tick its next one in µs or "". If the schedule is put, queue has the number
--       and time of creation of its queue: the queue must exist, and no tick of the schedule
--       may be due, because another process may be sending it to the previous queue
-- returns: read and due: the time in µs, µs until the next tick of all schedules or "", and
--       each schedule's name and text; drop: 1 or 0; set: "ok", "changed", "due", or "gone"
--       (the queue)
-- cost: at most four commands, and the bytes of the schedules that are read or set
local SCHEDULES, TICKS, QUEUES = unpack(KEYS)
local what, name, before, after, tick, queue, most = unpack(ARGV, 1, 7)
local call = redis.call
local clock = call('TIME')
local now = (clock[1] - 1735689600) * 1000000 + clock[2]
local function text(n) return string.format('%.0f', n) end
if what == 'drop' then
  call('ZREM', TICKS, name)
  return call('HDEL', SCHEDULES, name)
elseif what == 'set' then
  if (call('HGET', SCHEDULES, name) or '') ~= before then return 'changed' end
  if queue ~= '' then
    local is = call('HGET', QUEUES, string.match(after, '^%S+'))
    if not is or string.match(is, '^(%d+ %d+) ') ~= queue then return 'gone' end
    if tonumber(call('ZSCORE', TICKS, name) or now + 1) <= now then return 'due' end
  end
  call('HSET', SCHEDULES, name, after)
  if tick == '' then
    call('ZREM', TICKS, name)
  else
    call('ZADD', TICKS, tick, name)
  end
  return 'ok'
end
local first = tonumber(call('ZRANGE', TICKS, 0, 0, 'WITHSCORES')[2])
local all = {text(now), first and text(first - now) or ''}
if what == 'read' and #ARGV == 7 then
  for _, word in ipairs(call('HGETALL', SCHEDULES)) do all[#all + 1] = word end
  return all
end
local names = {}
if what == 'due' then
  names = call('ZRANGE', TICKS, '-inf', text(now), 'BYSCORE', 'LIMIT', 0, most)
else
  for i = 8, #ARGV do names[#names + 1] = ARGV[i] end
end
for _, each in ipairs(names) do
  local is = string.sub(each, 1, 1) == '#' and '' or call('HGET', SCHEDULES, each)
  if is then
    all[#all + 1] = each
    all[#all + 1] = is
  end
end
return all
