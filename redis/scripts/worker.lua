#!lua flags=allow-oom
-- Keeps the registry of workers.
-- keys: BEATS, workers by the end of their leases; WORKERS, their entries, and their states in
--       fields of the worker and "="; TICKS, the next ticks of the schedules
-- args: what to do, and what it needs ("" otherwise):
--       "register": adds a worker with its lease in µs and its entry, a packed map of n name
--       and v version
--       "beat": extends the lease of a worker; entry: its state, as JSON
--       "look": only reads a worker
--       "return": adds a worker that expired but kept its leases of subscriptions, with its
--       entry as it was
--       "remove": removes a worker
--       "expire": removes workers whose leases have ended; clock: "1" also checks the clock
-- returns: register: the worker; beat, look and return: "lost", or a list: its entry, packed
--       (l lease in µs, n, v, s time of registration); µs until its lease ends; "1" if the
--       lease of a worker has ended; µs until a schedule ticks or ""; µs until the first lease
--       of another worker ends or ""; expire: how many workers expired, and "1" if the clock
--       was set back since the last check; remove: 1 or 0
-- cost: at most eight commands, and two per worker that expires
local BEATS, WORKERS, TICKS = unpack(KEYS)
local what, worker, lease, entry, clock = unpack(ARGV)
local call = redis.call
local time = call('TIME')
local now = (time[1] - 1735689600) * 1000000 + time[2]
local function text(n) return string.format('%.0f', n) end
if what == 'register' then
  local id = text(math.max(now, tonumber(call('HGET', WORKERS, '#last') or 0) + 1))
  local is = cmsgpack.unpack(entry)
  is.l, is.s = tonumber(lease), now
  call('HSET', WORKERS, '#last', id, id, cmsgpack.pack(is))
  call('ZADD', BEATS, text(now + lease), id)
  return id
elseif what == 'expire' then
  local overdue = call('ZRANGEBYSCORE', BEATS, '-inf', '(' .. text(now), 'LIMIT', 0, 100)
  for _, id in ipairs(overdue) do
    call('ZREM', BEATS, id)
    call('HDEL', WORKERS, id, id .. '=')
  end
  local back = ''
  if clock == '1' then
    if tonumber(call('HGET', WORKERS, '#clock') or 0) - now > 2000000 then back = '1' end
    call('HSET', WORKERS, '#clock', text(now))
  end
  return {#overdue, back}
elseif what == 'remove' then
  call('HDEL', WORKERS, worker, worker .. '=')
  return call('ZREM', BEATS, worker)
elseif what == 'return' then
  call('HSET', WORKERS, worker, entry)
  call('ZADD', BEATS, text(now), worker)
  what, entry = 'beat', ''
end
local ends = call('ZSCORE', BEATS, worker)
local is = ends and call('HGET', WORKERS, worker)
if not is then return 'lost' end
if what == 'beat' then
  ends = now + cmsgpack.unpack(is).l
  call('ZADD', BEATS, text(ends), worker)
  if entry ~= '' then call('HSET', WORKERS, worker .. '=', entry) end
end
local two = call('ZRANGE', BEATS, 0, 1, 'WITHSCORES')
local first = tonumber(two[2])
local others = two[1] ~= worker and two[2] or two[4]
local tick = tonumber(call('ZRANGE', TICKS, 0, 0, 'WITHSCORES')[2])
return {is, text(ends - now), first < now and '1' or '', tick and text(tick - now) or '', others and text(others - now) or ''}
