#!lua flags=allow-oom
-- Checks a part of a subscription's messages and repairs those that neither a claim nor a
-- rescue would find. A delivery without a holder is lost; a message that is in no list waits
-- again. No script leaves such messages. Keys that were removed or restored by hand may.
-- keys: of the subscription
-- args: number of the subscription; rules
-- returns: "gone"; "later" (waiting messages are being moved); or how many it repaired
-- cost: some 100 deliveries and 200 messages or 100 kB a call, up to six commands each
local number, rules = unpack(ARGV)
-- includes: keys, rules, current, keyed, words, holders, apart, notes, ended, iteration
if call('HGET', TALLY, 'fill') or call('HGET', TALLY, 'first') or call('EXISTS', ASIDE_DUE, ASIDE_ALONE, ASIDE0, ASIDE1, ASIDE2, ASIDE3, ASIDE_APART) > 0
  or rules.y and call('EXISTS', ASIDE_WAIT) == 1 then return 'later' end
if call('EXISTS', APART) == 1 then call('HSET', TALLY, 'apart', 1) end
local repaired = 0

local function isHeld(delivery, tag)
  if string.sub(tag, 1, 1) == 'T' then return call('ZSCORE', TIMED, delivery) end
  return call('HEXISTS', CLAIM, tag) == 1 and call('ZSCORE', CLAIMS, tag) and call('ZSCORE', LEASES, string.match(tag, '^[^:]+'))
end
local page = call('HSCAN', RUN, iteration_cursor('repairedRun'), 'COUNT', 100)
for i = 1, #page[2], 2 do
  local delivery, held = page[2][i], page[2][i + 1]
  local tag, id = string.match(rules.y and keyIn(held) or held, '^([^/]+)/?(.*)$')
  if call('HEXISTS', MSG, id ~= '' and id or delivery) == 0 then -- the message is gone
    local key = rules.y and select(2, keyIn(held))
    if key then freed[key] = (freed[key] or 0) + 1 end
    call('HDEL', RUN, delivery)
    call('ZREM', TIMED, delivery)
    repaired = repaired + 1
  elseif not isHeld(delivery, tag) then
    ended(delivery, held, {o = 'lost', e = 'nobody held it'})
    repaired = repaired + 1
  end
end
pause_iteration('repairedRun', page[1])

-- waits returns whether a claim will find a waiting message. A key without a turn may wait
-- for something, or have lost its turn. It gets one, which only makes a claim check it.
local turn = {}
local function waits(id, content, st)
  local priority = string.sub(content, 1, 1)
  local member = priority .. ':' .. id
  if rules.y and call('ZSCORE', WAIT, placed(keyOf(content), id)) then
    local key = keyOf(content)
    if not (call('ZSCORE', TURN, key) or call('ZSCORE', FRESH, key) or call('ZSCORE', LATER, key) or call('ZSCORE', AGAIN, key)) then
      turn[#turn + 1] = key
    end
    return true
  end
  if not rules.o and (call('ZSCORE', DUE, member) or call('ZSCORE', ALONE, member)) then return true end
  if st and st.w and call('ZSCORE', APART, st.w) then return true end
  if rules.y or st then return false end
  local first = call('LINDEX', READY[priority], 0) -- the list is in the order of ids
  return first and tonumber(first) <= tonumber(id)
end

local put, ready, keys = {}, {}, {}
local function look(id, content)
  if markOf(call('HGET', HOLDERS, id), me) ~= '+' then return end
  local before = call('HGET', ST, id)
  local st = before and unpacked(before)
  if st and st.z and st.z ~= 'waits' and not st.d then -- it is settled
    if st.z == 'dead' and not call('ZSCORE', DEAD, id) then
      call('ZADD', DEAD, id, id)
      repaired = repaired + 1
    end
    return
  end
  if call('HEXISTS', RUN, st and st.d or id) == 1 then return end
  if not (st and st.d) and waits(id, content, st) then return end
  if st and st.d then
    st.d, st.z = nil, 'waits'
    call('HSET', ST, id, pack(st))
  end
  put[#put + 1] = id
  if rules.y then
    local key = keyOf(content)
    ready[#ready + 1] = 0
    ready[#ready + 1] = placed(key, id)
    keys[#keys + 1] = key
  else
    ready[#ready + 1] = ranked(string.sub(content, 1, 1), now)
    ready[#ready + 1] = string.sub(content, 1, 1) .. ':' .. id
  end
end
local cursor, looked = iteration_cursor('repaired'), 0
repeat
  page = call('HSCAN', MSG, cursor, 'COUNT', 1)
  cursor = page[1]
  looked = looked + 50
  for i = 1, #page[2], 2 do
    look(page[2][i], page[2][i + 1])
    looked = looked + 500 + #page[2][i + 1]
  end
until cursor == '0' or looked > 100000
pause_iteration('repaired', cursor)
repaired = repaired + #put
know(put)
many('ZADD', rules.y and WAIT or DUE, ready)
if #keys > 0 then -- count their messages in flight again
  local of, all = {}, call('HVALS', RUN)
  for _, held in ipairs(all) do
    local key = select(2, keyIn(held))
    if key then of[key] = (of[key] or 0) + 1 end
  end
  for _, key in ipairs(keys) do
    if of[key] then call('HSET', HELD, key, of[key]) else call('HDEL', HELD, key) end
  end
end
if rules.y then
  line(TURN, keys)
  line(TURN, turn)
end
wake = wake or #put > 0 or #turn > 0
if repaired > 0 then call('HSET', TALLY, 'repairs', call('HINCRBY', TALLY, 'found', repaired) .. ' ' .. text(now)) end
finish(call('HGET', META, 'limits'))
return repaired
