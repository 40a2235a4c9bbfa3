#!lua
-- Stores messages, all or none. Redis refuses it as a whole when it is out of
-- memory.
-- keys: of each queue in turn; then those of dedupe keys; then that of the request
-- args: 1 how many queues; 2 packed n, the queues' numbers, as text, y for each 1 if
--       it looks at keys, 2 if it is ordered, 3 if it is fair, else 0 (y nil: none does), and of a
--       request that may come again r, its window in ms, and g, its digest; then
--       per message two: its options, packed (q place of the queue if not 1,
--       d delay in µs, t time in µs, k place of its dedupe key among those, w
--       its window in ms, s true: do not ring, y its key, n the words it is found by,
--       as in words.lua) or "" if there are none; its content
-- returns: "gone" and the place of the queue that is not there any more; "reused";
--       or the ids
-- cost: per message one field set and one pushed (or added to what is due and known),
--       one added per word, one command each for all of a call; in a queue that looks at
--       keys one more per message and key
-- includes: keys
local queues = {}
local all = unpacked(ARGV[2])
local numbers, request = all.n, all.r and KEYS[#KEYS]
local before = request and call('GET', request)
if before then
  local was = unpacked(before)
  return was.g == all.g and was.i or 'reused'
end
local at = 0
for q = 1, tonumber(ARGV[1]) do
  local looks = all.y and all.y[q] or 0
  local meta = call('HMGET', KEYS[at + 1], 'no', 'last', 'mute')
  if meta[1] ~= numbers[q] then return {'gone', q} end
  queues[q] = {at = at, last = tonumber(meta[2]), quiet = meta[3] and now < tonumber(meta[3]), looks = looks, msg = {}, due = {}, known = {}, words = {}, n = 0, ready = {['0'] = {}, ['1'] = {}, ['2'] = {}, ['3'] = {}}}
  if looks > 0 then queues[q].wait, queues[q].names, queues[q].seen = {}, {}, {} end
  at = at + (looks > 0 and 39 or 29)
end
local first = at
local ids = {}
local plain = {}
for i = 3, #ARGV, 2 do
  local o = ARGV[i] == '' and plain or unpacked(ARGV[i])
  local content = ARGV[i + 1]
  local q = queues[o.q or 1]
  local known = o.k and call('GET', KEYS[first + o.k])
  if known then
    ids[#ids + 1] = known
  else
    q.last = math.max(q.last + 1, now)
    q.n = q.n + 1
    local id = text(q.last)
    ids[#ids + 1] = id
    if o.k then call('SET', KEYS[first + o.k], id, 'PX', o.w) end
    q.msg[#q.msg + 1] = id
    q.msg[#q.msg + 1] = content
    local due = o.d and now + o.d or o.t or 0
    local priority = string.sub(content, 1, 1)
    if due > now then
      q.due[#q.due + 1] = text(due)
      q.due[#q.due + 1] = priority .. ':' .. id
      q.known[#q.known + 1] = id
      q.known[#q.known + 1] = id
    elseif q.looks > 0 then -- scripts/keyed.lua
      local key = o.y or ''
      q.known[#q.known + 1] = id
      q.known[#q.known + 1] = id
      q.wait[#q.wait + 1] = 0
      q.wait[#q.wait + 1] = key .. '\0' .. string.format('%016.0f', q.last)
      if not q.seen[key] then
        q.seen[key] = true
        q.names[#q.names + 1] = key
      end
    else
      local ready = q.ready[priority]
      ready[#ready + 1] = id
    end
    if not o.s then q.wake = true end
    if o.n then
      for _, word in ipairs(o.n) do
        q.words[#q.words + 1] = '0'
        q.words[#q.words + 1] = word .. '\0' .. string.format('%016.0f', q.last)
      end
    end
  end
end

-- turns lines up the keys of what was sent: in a fair queue as newcomers, if they have
-- no turn yet. Of an ordered one a key that is in flight goes on when that has ended.
local function turns(q)
  local others = q.looks == 2 and got(KEYS[q.at + 35], q.names) or {}
  for i = 1, #q.names, 1000 do
    local args = {}
    local old = q.looks == 3 and call('ZMSCORE', KEYS[q.at + 31], unpack(q.names, i, math.min(i + 999, #q.names))) or {}
    for j = i, math.min(i + 999, #q.names) do
      if not others[j] and not old[j - i + 1] then
        args[#args + 1] = text(now + j)
        args[#args + 1] = q.names[j]
      end
    end
    if #args > 0 then call('ZADD', KEYS[q.at + (q.looks == 3 and 32 or 31)], 'NX', unpack(args)) end
  end
end

for _, q in ipairs(queues) do
  if q.n > 0 then
    many('HSET', KEYS[q.at + 2], q.msg)
    many('ZADD', KEYS[q.at + 5], q.due)
    many('ZADD', KEYS[q.at + 27], q.known)
    many('ZADD', KEYS[q.at + 28], q.words)
    if q.looks > 0 then
      many('ZADD', KEYS[q.at + 30], q.wait)
      turns(q)
    end
    for p, ready in pairs(q.ready) do many('RPUSH', KEYS[q.at + 7 + p], ready) end
    call('HSET', KEYS[q.at + 1], 'last', text(q.last))
    call('HINCRBY', KEYS[q.at + 1], 'sent', q.n)
    if q.wake and not q.quiet and call('DEL', KEYS[q.at + 20]) == 1 then call('PUBLISH', KEYS[q.at + 29], '') end
  end
end
if request then call('SET', request, pack({g = all.g, i = ids}), 'PX', all.r) end
return ids
