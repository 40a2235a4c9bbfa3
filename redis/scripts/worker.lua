#!lua flags=allow-oom
-- Keeps the registry of workers: register, beat, look (at what it is), return (of one
-- that was expired and has kept its leases of queues), remove, or expire (all whose
-- leases have ended).
-- keys: 1 workers by the end of their lease; 2 what they are; 3 the schedules' next ticks
-- args: 1 what to do; to register 2 the lease in µs, 3 a packed map of n name and
--       v version; to expire 2 "1" to look at the clock, too; else 2 the worker, and to
--       return 3 what it is, packed
-- returns: register: the worker; beat, look and return: "lost", or what it is, packed (l
--       its lease in µs, n, v, s when it began), µs until its lease ends, "1" if somebody's has
--       ended, µs until a schedule ticks or "", and µs until the first lease of another
--       ends or ""; expire: how many, and "1" if the clock was set back since it was
--       looked at; remove: how many
-- cost: at most seven commands, per worker that expires two
local call = redis.call
local clock = call('TIME')
local now = (clock[1] - 1735689600) * 1000000 + clock[2]
local function text(n) return string.format('%.0f', n) end
local what = ARGV[1]
if what == 'register' then
  local id = text(math.max(now, tonumber(call('HGET', KEYS[2], '#last') or 0) + 1))
  local is = cmsgpack.unpack(ARGV[3])
  is.l, is.s = tonumber(ARGV[2]), now
  call('HSET', KEYS[2], '#last', id, id, cmsgpack.pack(is))
  call('ZADD', KEYS[1], text(now + ARGV[2]), id)
  return id
elseif what == 'expire' then
  local overdue = call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. text(now), 'LIMIT', 0, 100)
  for _, id in ipairs(overdue) do
    call('ZREM', KEYS[1], id)
    call('HDEL', KEYS[2], id)
  end
  local back = ''
  if ARGV[2] == '1' then
    if tonumber(call('HGET', KEYS[2], '#clock') or 0) - now > 2000000 then back = '1' end
    call('HSET', KEYS[2], '#clock', text(now))
  end
  return {#overdue, back}
elseif what == 'remove' then
  call('HDEL', KEYS[2], ARGV[2])
  return call('ZREM', KEYS[1], ARGV[2])
elseif what == 'return' then
  call('HSET', KEYS[2], ARGV[2], ARGV[3])
  call('ZADD', KEYS[1], text(now), ARGV[2])
  what = 'beat'
end
local ends = call('ZSCORE', KEYS[1], ARGV[2])
local is = ends and call('HGET', KEYS[2], ARGV[2])
if not is then return 'lost' end
if what == 'beat' then
  ends = now + cmsgpack.unpack(is).l
  call('ZADD', KEYS[1], text(ends), ARGV[2])
end
local two = call('ZRANGE', KEYS[1], 0, 1, 'WITHSCORES')
local first = tonumber(two[2])
local others = two[1] ~= ARGV[2] and two[2] or two[4]
local tick = tonumber(call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2])
return {is, text(ends - now), first < now and '1' or '', tick and text(tick - now) or '', others and text(others - now) or ''}
