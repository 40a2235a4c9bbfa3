#!lua flags=allow-oom
-- Changes the options of a queue in the registry, and records that. renew.lua passes the change
-- on to the queue's slot.
-- keys: QUEUES, the registry; ACTIONS
-- args: name of the queue; was, its value in the registry; is, its next value; action,
--       as JSON without id and time; before: "", or until when in µs the change is wanted
-- returns: "changed" if it has another value by now, "late" after before, or "ok"
-- cost: seven commands
local QUEUES, ACTIONS = unpack(KEYS)
local name, was, is, action, before = unpack(ARGV)
local call = redis.call
local clock = call('TIME')
local now = (clock[1] - 1735689600) * 1000000 + clock[2]
if before ~= '' and now > tonumber(before) then return 'late' end
if call('HGET', QUEUES, name) ~= was then return 'changed' end
call('HSET', QUEUES, name, is)
local last = tonumber(string.match(call('LINDEX', ACTIONS, 0) or '', '^(%d+) ') or 0)
call('LPUSH', ACTIONS, string.format('%.0f %s', math.max(last + 1, now), action))
call('LTRIM', ACTIONS, 0, 9999)
return 'ok'
