#!lua flags=allow-oom
-- Ends a subscription: it gets no further messages and hands out none. It lets go of the
-- messages that it holds in several calls; the last call removes its keys.
-- keys: of the subscription
-- args: queue, its number; rules; number of the subscription, or "@" for the default one
-- returns: "gone"; "none" (it has ended); "only" (the queue has no other); "more" (call again;
--       any client can); or "" at the end
-- cost: two commands for each of some 1,000 messages, or 500 kB, a call
local queue, rules, number = unpack(ARGV)
local PAUSED = unpack(KEYS, 42, 42) -- of queues that look at keys
-- includes: keys, rules, holders, iteration
local meta = call('HMGET', META, 'no', 'readers', 'subs', 'ended', 'first', 'rev')
if meta[1] ~= queue or (meta[6] or nil) ~= rules.w then return 'gone' end
local all, others, this, place = meta[3] and unpacked(meta[3]) or {}, meta[5] and 0 or 1, nil, nil
for i, s in ipairs(all) do
  if s.i == number then this, place = s, i end
  if not s.g then others = others + 1 end
end
if number == '@' and meta[5] ~= 'ended' then this = {h = '@', g = meta[5]} end
if not this then return 'none' end
me = this.h
if not this.g then
  if others < 2 then return 'only' end -- this one
  if place then
    this.g = true
    call('HSET', META, 'subs', pack(all), 'ended', text(math.max(this.c, tonumber(meta[4] or -1))))
    call('HDEL', TALLY, 'no')
  else
    call('HSET', META, 'first', 'leaving')
  end
  call('HSET', META, 'readers', text(math.max(now, tonumber(meta[2]) + 1)))
end
local ids, cursor, looked = {}, iteration_cursor('left'), 0
repeat -- messages that are not in HOLDERS are held by the default subscription alone
  local page = call('HSCAN', place and HOLDERS or MSG, cursor, 'COUNT', place and 20 or 1)
  cursor = page[1]
  looked = looked + 50
  for i = 1, #page[2], 2 do
    ids[#ids + 1] = page[2][i]
    looked = looked + 500 + #page[2][i + 1]
  end
until cursor == '0' or looked > 500000
passed(ids, false)
if cursor ~= '0' then return pause_iteration('left', cursor) end
local shared, own = {[META] = true, [MSG] = true, [ASLEEP] = true, [HOLDERS] = true, [BELL] = true, [PAUSED or ''] = true}, {}
for _, key in ipairs(KEYS) do
  if not shared[key] then own[#own + 1] = key end
end
call('UNLINK', unpack(own))
if not place then
  call('HSET', META, 'first', 'ended')
  call('HDEL', META, 'left', 'apart')
elseif #all == 1 then
  call('HDEL', META, 'subs', 'readers')
else
  table.remove(all, place)
  call('HSET', META, 'subs', pack(all))
end
return ''
