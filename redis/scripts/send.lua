#!lua
-- Stores messages, all or none. Redis rejects the whole call if it is out of memory.
-- keys: those of each queue in turn, followed by those of its further subscriptions; then the
--       dedupe keys, or TICKED for the ticks of a schedule; then the key of the request
-- args: count of the queues; head, packed:
--         n numbers of the queues, as text
--         y per queue 1 if it looks at keys, 2 if it is ordered, 3 if it is fair, else 0
--           (nil: none looks at keys)
--         v versions of the queues' subscriptions (nil: no queue has further ones)
--         l letters of the further subscriptions of each queue (holders.lua; nil as v)
--         z per queue 1 if the default subscription has ended (nil: none has)
--         a per queue its max_age in µs, 0 without one (nil: none has)
--         w revisions of the queues' options (nil: none was ever changed)
--         r window in ms and g digest, of a request that may be repeated
--         f a dead letter, of which the only message is an edited copy, and x letters of the
--           subscriptions that do not get the copy
--         e name of a schedule whose ticks these are, b the queue's record of the last tick
--           sent, j the last of these ticks in µs, as text
--       then two arguments per message: its content, after its options, packed, or "":
--         q place of the queue if not 1
--         d delay in µs, or t time in µs
--         k place of its dedupe key among those, w the window of that in ms
--         u its unique key: k the key, h the place of UNIQUE among the dedupe keys, which the
--           line of its messages follows, u until when it holds it, e true: it replaces, m the
--           longest delay of that in µs, o a message whose key it takes over (taken.lua)
--         s true: do not ring
--         y its key
--         n the words by which it is found (words.lua)
--         x letters of the subscriptions whose filters reject it
-- returns: the ids, after = that of an earlier message that has the dedupe key, and as in
--       taken.lua; or "again" and these of the earlier request with the key; "other", a place,
--       an id and a field: that message cannot replace the one with the id, because of the field; or "gone" and the place of a queue
--       that does not exist any more or has
--       other subscriptions or options; "alive" (f is no dead letter any more, or was erased); "copied", the id of an edited copy of f that was sent before, and letters of the subscriptions that got it; "reused" (another request used the key); "ticked" (another
--       process sent a tick of the schedule)
-- cost: per message one field written and one id pushed (or added to DUE and KNOWN, and with a
--       max_age one state written), one member per word, one command each for a whole call; if
--       the queue looks at keys, one more per message and key; the same again, without the
--       content, per further subscription that gets the message
local count, head = unpack(ARGV, 1, 2)
-- The places of keys among those of one subscription (keys.lua, keyed.lua).
local AT_META, AT_MSG, AT_ST, AT_DUE, AT_READY0, AT_ASLEEP, AT_KNOWN = 1, 2, 3, 5, 7, 20, 27
local AT_WORDS, AT_TALLY, AT_HOLDERS, AT_BELL, AT_WAIT, AT_TURN, AT_FRESH = 28, 29, 30, 33, 34, 35, 36
local AT_HELD, AT_ASIDE_WAIT = 39, 43
-- includes: keys
local queues = {}
local all = unpacked(head)
local numbers, request = all.n, all.r and KEYS[#KEYS]
local before = request and call('GET', request)
if before then
  local was = unpacked(before)
  return was.g == all.g and {'again', was.i} or 'reused'
end

-- reader collects the changes for a subscription, whose keys follow the place at.
local function reader(at, looks, aged, mute, letter)
  local r = {at = at, looks = looks, letter = letter, states = aged and {}, quiet = mute and now < tonumber(mute), due = {}, known = {}, words = {}, n = 0, ready = {['0'] = {}, ['1'] = {}, ['2'] = {}, ['3'] = {}}}
  if looks > 0 then r.wait, r.names, r.seen = {}, {}, {} end
  return r
end

local at = 0
for q = 1, tonumber(count) do
  local looks, aged = all.y and all.y[q] or 0, all.a and all.a[q] > 0
  local meta = call('HMGET', KEYS[at + AT_META], 'no', 'last', 'mute', 'readers', 'rev')
  if meta[1] ~= numbers[q] then return {'gone', q} end
  if (meta[4] or '') ~= (all.v and all.v[q] or '') or (meta[5] or '') ~= (all.w and all.w[q] or '') then return {'gone', q} end
  local letters = all.l and all.l[q] or ''
  queues[q] = {at = at, age = aged and all.a[q], last = tonumber(meta[2]), msg = {}, held = {}, first = not (all.z and all.z[q] == 1), readers = {reader(at, looks, aged, meta[3])}}
  if letters == '' and looks == 0 then queues[q].simple = queues[q].readers[1] end
  for i = 1, #letters + 1 do
    if i > 1 then queues[q].readers[i] = reader(at, looks, aged, call('HGET', KEYS[at + AT_TALLY], 'mute'), string.sub(letters, i - 1, i - 1)) end
    at = at + (looks > 0 and AT_ASIDE_WAIT or AT_BELL)
  end
end
local first = at
if all.e and (call('HGET', KEYS[first + 1], all.e) or '') ~= (all.b or '') then return 'ticked' end
-- A dead letter is replayed, or an edited copy of it is sent, and not both: the copy's id marks it for
-- bury.lua, and for another call if the process dies before it discards the dead letter.
local copied, copy, has = {}, nil, ''
if all.f then
  for j, r in ipairs(queues[1].readers) do
    if (j > 1 or queues[1].first) and not string.find(all.x or '', r.letter or '@', 1, true) then
      local st = call('HGET', KEYS[r.at + AT_ST], all.f)
      st = st and unpacked(st)
      if not st or st.z ~= 'dead' or st.e then return 'alive' end
      if st.c then copy, has = st.c, has .. (r.letter or '@') end
      copied[KEYS[r.at + AT_ST]] = st
    end
  end
end
if copy then return {'copied', copy, has} end
local ids = {}
local plain = {}
local unique, took, hinders -- of taken.lua, which only the script for unique keys has
-- taken
local hindered = hinders and hinders(3)
if hindered then return hindered end

-- put adds a message to the changes for a subscription.
local function put(r, id, place, o, priority, due)
  r.n = r.n + 1
  if due > now then
    r.due[#r.due + 1] = ranked(priority, due)
    r.due[#r.due + 1] = priority .. ':' .. id
    r.known[#r.known + 1] = id
    r.known[#r.known + 1] = id
    if r.states then -- its age counts from then (hand.lua)
      r.states[#r.states + 1] = id
      r.states[#r.states + 1] = pack({a = 1, f = 0, l = 0, x = 0, g = due})
    end
  elseif r.looks > 0 then -- as in keyed.lua
    local key = o.y or ''
    r.known[#r.known + 1] = id
    r.known[#r.known + 1] = id
    r.wait[#r.wait + 1] = 0
    r.wait[#r.wait + 1] = key .. '\0' .. string.format('%016.0f', place)
    if not r.seen[key] then
      r.seen[key] = true
      r.names[#r.names + 1] = key
    end
  else
    local ready = r.ready[priority]
    ready[#ready + 1] = id
  end
  if not o.s then r.wake = true end
  if o.n then
    for _, word in ipairs(o.n) do
      r.words[#r.words + 1] = '0'
      r.words[#r.words + 1] = word .. '\0' .. string.format('%016.0f', place)
    end
  end
end

-- takenBack returns whether a message was cancelled, purged or discarded for each of the
-- queue's subscriptions. Subscriptions that were made after it, and those whose filters
-- reject its successor (letters in x), do not count. A message that is not known any more
-- was not taken back.
local function takenBack(q, id, x)
  local any, held, made = false, call('HGET', KEYS[q.at + AT_HOLDERS], id) or '', {}
  for _, s in ipairs(unpacked(call('HGET', KEYS[q.at + AT_META], 'subs') or pack({}))) do made[s.h] = s.c end
  for j, r in ipairs(q.readers) do
    if j > 1 or q.first then
      local letter, st = r.letter or '@', call('HGET', KEYS[r.at + AT_ST], id)
      local z = st and unpacked(st).z
      if z == 'cancelled' or z == 'discarded' then
        any = true
      elseif st or string.find(held, letter, 1, true)
        or not (made[letter] and made[letter] > tonumber(id) or x and string.find(x, letter, 1, true)) then
        return false
      end
    end
  end
  return any
end

for i = 3, #ARGV, 2 do
  local o = ARGV[i] == '' and plain or unpacked(ARGV[i])
  local content = ARGV[i + 1]
  local q = queues[o.q or 1]
  local known = o.k and call('GET', KEYS[first + o.k])
  local later = o ~= plain and (o.d and now + o.d or o.t) or 0
  if o.u and o.u.m then later = math.min(later, now + o.u.m) end
  local instead = o.u and unique(q, o, content, later)
  if known and not takenBack(q, known, o.x) then
    ids[#ids + 1] = '=' .. known
  elseif instead then
    ids[#ids + 1] = instead
  else
    q.last = math.max(q.last + 1, now)
    local id = text(q.last)
    ids[#ids + 1] = id
    if o.k then call('SET', KEYS[first + o.k], id, 'PX', o.w) end
    if o.u then took(q, o, id, later) end
    q.given = true
    local priority, simple = string.sub(content, 1, 1), q.simple
    if simple and o == plain then -- the common case
      q.msg[#q.msg + 1] = id
      q.msg[#q.msg + 1] = content
      local ready = simple.ready[priority]
      ready[#ready + 1] = id
      simple.n, simple.wake = simple.n + 1, true
    else
      local due, held = later, ''
      if q.first and not (o.x and string.find(o.x, '@', 1, true)) then
        held = '@+'
        put(q.readers[1], id, q.last, o, priority, due)
      end
      for j = 2, #q.readers do
        local r = q.readers[j]
        if not (o.x and string.find(o.x, r.letter, 1, true)) then
          held = held .. r.letter .. '+'
          put(r, id, q.last, o, priority, due)
        end
      end
      if held ~= '' then
        q.msg[#q.msg + 1] = id
        q.msg[#q.msg + 1] = content
        if held ~= '@+' then
          q.held[#q.held + 1] = id
          q.held[#q.held + 1] = held
        end
      end
    end
  end
end

-- turns gives the keys of the messages a turn. In a fair queue, keys without a turn join
-- FRESH. In an ordered queue, a key in flight gets its turn when that has ended.
local function turns(r)
  local others = r.looks == 2 and got(KEYS[r.at + AT_HELD], r.names) or {}
  for i = 1, #r.names, 1000 do
    local args = {}
    local old = r.looks == 3 and call('ZMSCORE', KEYS[r.at + AT_TURN], unpack(r.names, i, math.min(i + 999, #r.names))) or {}
    for j = i, math.min(i + 999, #r.names) do
      if not others[j] and not old[j - i + 1] then
        args[#args + 1] = text(now + j)
        args[#args + 1] = r.names[j]
      end
    end
    if #args > 0 then call('ZADD', KEYS[r.at + (r.looks == 3 and AT_FRESH or AT_TURN)], 'NX', unpack(args)) end
  end
end

for _, q in ipairs(queues) do
  if q.given then
    many('HSET', KEYS[q.at + AT_MSG], q.msg)
    many('HSET', KEYS[q.at + AT_HOLDERS], q.held)
    call('HSET', KEYS[q.at + AT_META], 'last', text(q.last))
  end
  for _, r in ipairs(q.readers) do
    if r.n > 0 then
      many('ZADD', KEYS[r.at + AT_DUE], r.due)
      if r.states then many('HSET', KEYS[r.at + AT_ST], r.states) end
      many('ZADD', KEYS[r.at + AT_KNOWN], r.known)
      many('ZADD', KEYS[r.at + AT_WORDS], r.words)
      if r.looks > 0 then
        many('ZADD', KEYS[r.at + AT_WAIT], r.wait)
        turns(r)
      end
      for p, ready in pairs(r.ready) do many('RPUSH', KEYS[r.at + AT_READY0 + p], ready) end
      call('HINCRBY', KEYS[r.at + AT_TALLY], 'sent', r.n)
      if r.wake and not r.quiet then q.wake = true end
    end
  end
end
if all.e and call('HSET', KEYS[first + 1], all.e, all.j .. ' ' .. ids[#ids]) == 1 and call('HLEN', KEYS[first + 1]) > 1000 then
  local rows, old = call('HGETALL', KEYS[first + 1]), {} -- those of dropped schedules are removed
  for i = 1, #rows, 2 do
    if tonumber(string.match(rows[i + 1], '^%d+')) < now - 86400000000 then old[#old + 1] = rows[i] end
  end
  many('HDEL', KEYS[first + 1], old)
end
if queues[1].given then
  for key, st in pairs(copied) do
    st.c = ids[1]
    call('HSET', key, all.f, pack(st))
  end
end
if request then call('SET', request, pack({g = all.g, i = ids}), 'PX', all.r) end
for _, q in ipairs(queues) do
  if q.wake then ring(KEYS[q.at + AT_ASLEEP], KEYS[q.at + AT_BELL]) end
end
return ids
