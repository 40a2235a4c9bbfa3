#!lua flags=allow-oom
-- Keeps the list of things that may be paused, and when to look whether their pauses have ended. The
-- pauses are stored with the queue, in the registry, or with the schedule; the list may have more, never less,
-- because a process adds to it before it pauses.
-- keys: PAUSES, a sorted set of one score: an id of 16 digits, a blank, and what; TICKS, when to look
--       at it, as "#" and the same
-- args: the action, and its arguments ("" otherwise):
--       "add": adds what, to be looked at at ends or a check, whichever is first; check is a
--       duration in µs
--       "keep": the pause member was stored; ends, or "" if it does not end
--       "look": looks at member again at ends, if it is still there
--       "remove": removes member
--       "list": lists most members before an id, the last one first
-- returns: add: "past" if ends has passed, or a list: the new id; list: the time in µs and the
--       members; the others: 1
-- cost: three commands
local PAUSES, TICKS = unpack(KEYS)
local what, member, ends, check, most = unpack(ARGV)
local call = redis.call
local clock = call('TIME')
local now = (clock[1] - 1735689600) * 1000000 + clock[2]
local function text(n) return string.format('%.0f', n) end
if what == 'add' then
  if ends ~= '' and tonumber(ends) <= now then return 'past' end
  local last = call('ZRANGE', PAUSES, '+', '-', 'BYLEX', 'REV', 'LIMIT', 0, 1)[1]
  local id = string.format('%016.0f', math.max(now, last and tonumber(string.sub(last, 1, 16)) + 1 or 0))
  call('ZADD', PAUSES, 0, id .. ' ' .. member)
  call('ZADD', TICKS, text(math.min(tonumber(ends) or math.huge, now + check)), '#' .. id .. ' ' .. member)
  return {id}
elseif what == 'keep' then
  call('ZADD', PAUSES, 0, member)
  if ends == '' then
    call('ZREM', TICKS, '#' .. member)
  else
    call('ZADD', TICKS, ends, '#' .. member)
  end
elseif what == 'look' then
  call('ZADD', TICKS, 'XX', ends, '#' .. member)
elseif what == 'remove' then
  call('ZREM', PAUSES, member)
  call('ZREM', TICKS, '#' .. member)
elseif what == 'list' then
  local all = call('ZRANGE', PAUSES, member == '' and '+' or '(' .. member, '-', 'BYLEX', 'REV', 'LIMIT', 0, most)
  table.insert(all, 1, text(now))
  return all
end
return 1
