#!lua
-- Gives a subscription a part of the messages that were sent before it was made. Until it
-- has them all it hands out nothing, so that no message is delivered twice and keys keep their
-- order.
-- keys: of the subscription; then, of each other subscription of the queue, ST and DUE
-- args: number of the subscription; rules; filter, packed (k kinds, h headers), or "";
--       scheduled: "1" if it gets only messages that fall due later; letters of the other
--       subscriptions (holders.lua)
-- returns: "gone", "more" (call again; any client can), or "" at the end
-- cost: per message of the queue three commands, and two per other subscription; at most some
--       1,000 messages or 500 kB a call, fewer messages beside several other subscriptions
local number, rules, filter, scheduled, letters = unpack(ARGV)
-- includes: keys, rules, current, keyed, words, holders, iteration
local last = tonumber(call('HGET', TALLY, 'fill') or nil)
if not last then return '' end
local filter = filter ~= '' and unpacked(filter)
local base = #KEYS - 2 * #letters

local function has(words, word)
  for _, w in ipairs(words) do
    if w == word then return true end
  end
  return false
end

local function passes(content)
  if not filter then return true end
  local count, raw = reader(content)
  local function word()
    local w, n = raw()
    return n > 0 and string.sub(w, -n) or ''
  end
  word() -- key
  local kind = word()
  if filter.k and not has(filter.k, kind) then return false end
  word() -- reference
  word() -- content type
  local headers = {}
  for _ = 1, count() do
    local name = word()
    headers[name] = word()
  end
  for name, words in pairs(filter.h or {}) do
    if not headers[name] or not has(words, headers[name]) then return false end
  end
  return true
end

-- standing returns whether another subscription still has to deliver a message; its due time
-- if all of them wait for that; and g of their states (hand.lua); nil if it was cancelled or
-- erased.
local function standing(id, held, member)
  local wanted, soon, due, since = false, false, nil, nil
  for i = 1, #letters do
    local mark, before = markOf(held, string.sub(letters, i, i)), call('HGET', KEYS[base + 2 * i - 1], id)
    local st = before and unpacked(before)
    if st and (st.z == 'cancelled' or st.e) then return nil end
    if st and st.g then since = math.max(since or 0, st.g) end
    if mark then
      if mark == '+' and not (st and st.z and not st.d and st.z ~= 'waits' and st.z ~= 'dead') then wanted = true end
      local at = (not st or st.a == 1 and (st.g or 0) > now) and tonumber(call('ZSCORE', KEYS[base + 2 * i], member) or nil)
      at = at and dueOf(at)
      if at and at > now then
        due = math.min(due or at, at)
      else
        soon = true
      end
    end
  end
  return wanted, not soon and due or nil, since
end

local held, due, known, wait, names, found, states = {}, {}, {}, {}, {}, {}, {}
local looked, cursor = 0, iteration_cursor('filled')
local function consider(id, content)
  local who = call('HGET', HOLDERS, id) or string.find(letters, '@', 1, true) and '@+'
  if not who then return end -- the default subscription has ended and lets go of it
  if tonumber(id) > last or string.find(who, me, 1, true) or held[id] or not passes(content) then return end
  local member = string.sub(content, 1, 1) .. ':' .. id
  local wanted, at, since = standing(id, who, member)
  if wanted == nil or not (wanted or rules.p) or scheduled == '1' and not at then return end
  held[id] = who .. me .. '+'
  known[#known + 1] = id
  if since then
    states[#states + 1] = id
    states[#states + 1] = pack({a = 1, f = 0, l = 0, x = 0, g = since})
  end
  if rules.y and not at then
    local key = keyOf(content)
    wait[#wait + 1] = 0
    wait[#wait + 1] = placed(key, id)
    names[#names + 1] = key
  else -- new messages are in the ready lists, in the order of sending
    due[#due + 1] = ranked(string.sub(content, 1, 1), at or tonumber(id))
    due[#due + 1] = member
  end
  for _, word in ipairs((wordsOf(content))) do
    found[#found + 1] = 0
    found[#found + 1] = entry(word, id)
  end
end
repeat
  local page = call('HSCAN', MSG, cursor, 'COUNT', 1) -- HSCAN returns the contents, too
  cursor = page[1]
  looked = looked + 50
  for i = 1, #page[2], 2 do
    consider(page[2][i], page[2][i + 1])
    looked = looked + 250 * (1 + #letters) + #page[2][i + 1]
  end
until cursor == '0' or looked > 500000
local holders = {}
for id, who in pairs(held) do
  holders[#holders + 1] = id
  holders[#holders + 1] = who
end
many('HSET', HOLDERS, holders)
know(known)
many('ZADD', DUE, due)
many('HSET', ST, states)
many('ZADD', WORDS, found)
if rules.y then
  many('ZADD', WAIT, wait)
  line(TURN, names)
end
if #known > 0 then call('HINCRBY', TALLY, 'sent', #known) end
if cursor ~= '0' then return pause_iteration('filled', cursor) end
call('HDEL', TALLY, 'fill', 'filled')
ring(ASLEEP, BELL)
return ''
