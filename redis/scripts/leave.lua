#!lua flags=allow-oom
-- Ends a subscription: it gets nothing from now on and hands out nothing. What it holds
-- it lets go of bit by bit, and then its keys go.
-- keys: of the subscription
-- args: 1 the queue's number; 2 the subscription's rules (rules.lua); 3 its number, or "@"
--       for the one that the queue was born with
-- returns: "gone"; "none": it has ended; "only": there is no other; "more" (the next call
--       goes on, whoever makes it); or "" at the end
-- cost: as much as some 1,000 messages or 500 kB, and two commands each, a call
-- includes: keys, rules, holders, walk
local meta = call('HMGET', META, 'no', 'readers', 'subs', 'ended', 'first')
if meta[1] ~= ARGV[1] then return 'gone' end
local all, others, this, place = meta[3] and unpacked(meta[3]) or {}, meta[5] and 0 or 1, nil, nil
for i, s in ipairs(all) do
  if s.i == ARGV[3] then this, place = s, i end
  if not s.g then others = others + 1 end
end
if ARGV[3] == '@' and meta[5] ~= 'ended' then this = {h = '@', g = meta[5]} end
if not this then return 'none' end
me = this.h
if not this.g then
  if others < 2 then return 'only' end -- it is one of them
  if place then
    this.g = true
    call('HSET', META, 'subs', pack(all), 'ended', text(math.max(this.c, tonumber(meta[4] or -1))))
    call('HDEL', TALLY, 'no')
  else
    call('HSET', META, 'first', 'leaving')
  end
  call('HSET', META, 'readers', text(math.max(now, tonumber(meta[2]) + 1)))
end
local ids, cursor, looked = {}, resumed('left'), 0
repeat -- what is not in HOLDERS is of the one that the queue was born with alone
  local page = call('HSCAN', place and HOLDERS or MSG, cursor, 'COUNT', place and 20 or 1)
  cursor = page[1]
  looked = looked + 50
  for i = 1, #page[2], 2 do
    ids[#ids + 1] = page[2][i]
    looked = looked + 500 + #page[2][i + 1]
  end
until cursor == '0' or looked > 500000
passed(ids, false)
if cursor ~= '0' then return paused('left', cursor) end
local shared, own = {[META] = true, [MSG] = true, [ASLEEP] = true, [HOLDERS] = true, [BELL] = true, [KEYS[40] or ''] = true}, {}
for _, key in ipairs(KEYS) do
  if not shared[key] then own[#own + 1] = key end
end
call('UNLINK', unpack(own))
if not place then
  call('HSET', META, 'first', 'ended')
  call('HDEL', META, 'left')
elseif #all == 1 then
  call('HDEL', META, 'subs', 'readers')
else
  table.remove(all, place)
  call('HSET', META, 'subs', pack(all))
end
return ''
