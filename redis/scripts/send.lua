#!lua
-- Stores messages, all or none. Redis refuses it as a whole when it is out of
-- memory.
-- keys: of each queue in turn, and behind each those of its further subscriptions; then
--       those of dedupe keys, or that of the schedule's last ticks; then that of the request
-- args: 1 how many queues; 2 packed n, the queues' numbers, as text, y for each 1 if
--       it looks at keys, 2 if it is ordered, 3 if it is fair, else 0 (y nil: none does), v, the versions
--       of the queues' subscriptions, and l, the letters of the further ones of each
--       (holders.lua; both nil: there are none), z, for each 1 if the first has ended
--       (nil: none has), and of a
--       request that may come again r, its window in ms, and g, its digest; of the
--       ticks of a schedule e, its name, b, what is known of the last one that was sent
--       before, and j, the last of these in µs, as text; then
--       per message two: its options, packed (q place of the queue if not 1,
--       d delay in µs, t time in µs, k place of its dedupe key among those, w
--       its window in ms, s true: do not ring, y its key, n the words it is found by,
--       as in words.lua, x the letters of those whose filters leave it out) or "" if
--       there are none; its content
-- returns: "gone" and the place of the queue that is not there any more, or has other
--       subscriptions; "reused"; "ticked" (somebody else has sent a tick of the
--       schedule);
--       or the ids
-- cost: per message one field set and one pushed (or added to what is due and known),
--       one added per word, one command each for all of a call; in a queue that looks at
--       keys one more per message and key; per further subscription that gets it as much
--       again, but for the content
-- includes: keys
local queues = {}
local all = unpacked(ARGV[2])
local numbers, request = all.n, all.r and KEYS[#KEYS]
local before = request and call('GET', request)
if before then
  local was = unpacked(before)
  return was.g == all.g and was.i or 'reused'
end

-- reader is a subscription, whose keys come behind at, with what it is going to get.
local function reader(at, looks, mute, letter)
  local r = {at = at, looks = looks, letter = letter, quiet = mute and now < tonumber(mute), due = {}, known = {}, words = {}, n = 0, ready = {['0'] = {}, ['1'] = {}, ['2'] = {}, ['3'] = {}}}
  if looks > 0 then r.wait, r.names, r.seen = {}, {}, {} end
  return r
end

local at = 0
for q = 1, tonumber(ARGV[1]) do
  local looks = all.y and all.y[q] or 0
  local meta = call('HMGET', KEYS[at + 1], 'no', 'last', 'mute', 'readers')
  if meta[1] ~= numbers[q] then return {'gone', q} end
  if (meta[4] or '') ~= (all.v and all.v[q] or '') then return {'gone', q} end
  local letters = all.l and all.l[q] or ''
  queues[q] = {at = at, last = tonumber(meta[2]), msg = {}, held = {}, first = not (all.z and all.z[q] == 1), readers = {reader(at, looks, meta[3])}}
  if letters == '' and looks == 0 then queues[q].simple = queues[q].readers[1] end
  for i = 1, #letters + 1 do
    if i > 1 then queues[q].readers[i] = reader(at, looks, call('HGET', KEYS[at + 29], 'mute'), string.sub(letters, i - 1, i - 1)) end
    at = at + (looks > 0 and 41 or 31)
  end
end
local first = at
if all.e and (call('HGET', KEYS[first + 1], all.e) or '') ~= (all.b or '') then return 'ticked' end
local ids = {}
local plain = {}

-- put lets a subscription get a message.
local function put(r, id, place, o, priority, due)
  r.n = r.n + 1
  if due > now then
    r.due[#r.due + 1] = ranked(priority, due)
    r.due[#r.due + 1] = priority .. ':' .. id
    r.known[#r.known + 1] = id
    r.known[#r.known + 1] = id
  elseif r.looks > 0 then -- scripts/keyed.lua
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

-- takenBack tells whether a message was cancelled, purged or discarded for each of the
-- queue's subscriptions, but for those made after it and those whose filters leave out the
-- next one of its key (x). Of what is not known any more nobody can tell that it was.
local function takenBack(q, id, x)
  local any, held, made = false, call('HGET', KEYS[q.at + 30], id) or '', {}
  for _, s in ipairs(unpacked(call('HGET', KEYS[q.at + 1], 'subs') or pack({}))) do made[s.h] = s.c end
  for j, r in ipairs(q.readers) do
    if j > 1 or q.first then
      local letter, st = r.letter or '@', call('HGET', KEYS[r.at + 3], id)
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
  if known and not takenBack(q, known, o.x) then
    ids[#ids + 1] = known
  else
    q.last = math.max(q.last + 1, now)
    local id = text(q.last)
    ids[#ids + 1] = id
    if o.k then call('SET', KEYS[first + o.k], id, 'PX', o.w) end
    q.given = true
    local priority, simple = string.sub(content, 1, 1), q.simple
    if simple and o == plain then -- as most
      q.msg[#q.msg + 1] = id
      q.msg[#q.msg + 1] = content
      local ready = simple.ready[priority]
      ready[#ready + 1] = id
      simple.n, simple.wake = simple.n + 1, true
    else
      local due, held = o.d and now + o.d or o.t or 0, ''
      if q.first then
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

-- turns lines up the keys of what was sent: in a fair queue as newcomers, if they have
-- no turn yet. Of an ordered one a key that is in flight goes on when that has ended.
local function turns(r)
  local others = r.looks == 2 and got(KEYS[r.at + 37], r.names) or {}
  for i = 1, #r.names, 1000 do
    local args = {}
    local old = r.looks == 3 and call('ZMSCORE', KEYS[r.at + 33], unpack(r.names, i, math.min(i + 999, #r.names))) or {}
    for j = i, math.min(i + 999, #r.names) do
      if not others[j] and not old[j - i + 1] then
        args[#args + 1] = text(now + j)
        args[#args + 1] = r.names[j]
      end
    end
    if #args > 0 then call('ZADD', KEYS[r.at + (r.looks == 3 and 34 or 33)], 'NX', unpack(args)) end
  end
end

for _, q in ipairs(queues) do
  if q.given then
    many('HSET', KEYS[q.at + 2], q.msg)
    many('HSET', KEYS[q.at + 30], q.held)
    call('HSET', KEYS[q.at + 1], 'last', text(q.last))
  end
  for _, r in ipairs(q.readers) do
    if r.n > 0 then
      many('ZADD', KEYS[r.at + 5], r.due)
      many('ZADD', KEYS[r.at + 27], r.known)
      many('ZADD', KEYS[r.at + 28], r.words)
      if r.looks > 0 then
        many('ZADD', KEYS[r.at + 32], r.wait)
        turns(r)
      end
      for p, ready in pairs(r.ready) do many('RPUSH', KEYS[r.at + 7 + p], ready) end
      call('HINCRBY', KEYS[r.at + 29], 'sent', r.n)
      if r.wake and not r.quiet then q.wake = true end
    end
  end
end
if all.e and call('HSET', KEYS[first + 1], all.e, all.j .. ' ' .. ids[#ids]) == 1 and call('HLEN', KEYS[first + 1]) > 1000 then
  local rows, old = call('HGETALL', KEYS[first + 1]), {} -- of schedules that were dropped
  for i = 1, #rows, 2 do
    if tonumber(string.match(rows[i + 1], '^%d+')) < now - 86400000000 then old[#old + 1] = rows[i] end
  end
  many('HDEL', KEYS[first + 1], old)
end
if request then call('SET', request, pack({g = all.g, i = ids}), 'PX', all.r) end
for _, q in ipairs(queues) do
  if q.wake then ring(q.at) end
end
return ids
