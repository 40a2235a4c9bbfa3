-- unique gives the unique key of a message that is being sent to it, or says what becomes of the
-- message instead: in the reply the id of the message that holds the key, after "~" if its content
-- was replaced, and otherwise after "=" and before ":" and its state.
local now_taken, new = {}, {} -- keys taken in this call, and their messages, which are not stored yet
local made_of = {}

local function subsOf(q)
  local subs = {}
  for j, r in ipairs(q.readers) do
    if j > 1 or q.first then subs[#subs + 1] = {at = r.at, letter = r.letter or '@', reader = r, age = q.age} end
  end
  made_of[q] = made_of[q] or madeOf(q.at)
  return subs, made_of[q]
end

local function heldBy(q, o)
  local row = call('HGET', KEYS[first + o.u.h], o.u.k)
  row = row and unpacked(row)
  if not row or row.i == o.u.o then return nil end
  local subs, made = subsOf(q)
  local z = holds(subs, made, row)
  return z and row, z, subs, made
end

-- other returns what prevents a message from replacing another: its "key", or its "kind" if it would
-- be for other subscriptions.
local function other(q, o, row, subs)
  if q.readers[1].looks > 0 and keyOf(call('HGET', KEYS[q.at + AT_MSG], row.i)) ~= (o.y or '') then return 'key' end
  for _, sub in ipairs(subs) do
    local rejects, rejected = o.x and string.find(o.x, sub.letter, 1, true), row.x and string.find(row.x, sub.letter, 1, true)
    if (rejects and true or false) ~= (rejected and true or false) then return 'kind' end
  end
end

unique = function(q, o, content, due)
  local name = o.u.h .. o.u.k
  if now_taken[name] then return '=' .. now_taken[name] end
  local row, z, subs, made = heldBy(q, o)
  if not row then return nil end
  if o.u.e and untouched(subs, made, row.i, row.x) then
    local at = math.max(now, due)
    if o.u.m then at = math.max(now, math.min(at, tonumber(row.i) + o.u.m)) end
    local aged = q.readers[1].states ~= nil
    rewrite(subs, row.i, content, o.n or {}, at, aged, q.readers[1].looks > 0 and (o.y or ''))
    for _, sub in ipairs(subs) do
      if not sub.reader.quiet and not o.s then q.wake = true end
    end
    return '~' .. row.i
  end
  return '=' .. row.i .. ':' .. z
end

-- took notes that a message has taken its key. It forgets the keys of two messages that do not
-- need them any more, so that the hash does not grow.
took = function(q, o, id, due)
  local row = {i = id, u = o.u.u, a = 1, x = o.x}
  new[id] = true
  call('HSET', KEYS[first + o.u.h], o.u.k, pack(row), '@' .. id, pack({k = o.u.k, u = o.u.u, x = o.x}))
  if o.u.o then call('HDEL', KEYS[first + o.u.h], '@' .. o.u.o) end
  now_taken[o.u.h .. o.u.k] = id .. ':' .. (due > now and 'scheduled' or 'ready')
  local line = KEYS[first + o.u.h + 1]
  local subs, made = subsOf(q)
  forgetKeys(KEYS[first + o.u.h], line, 2, subs, made, new)
  call('RPUSH', line, id)
end

-- hinders is called before anything is written, with the place of the first message. It returns
-- the reply if a message cannot replace the one that holds its key.
hinders = function(from)
  for i = from, #ARGV, 2 do
    local o = ARGV[i] ~= '' and unpacked(ARGV[i])
    if o and o.u and o.u.e then
      local q = queues[o.q or 1]
      local row, _, subs, made = heldBy(q, o)
      local field = row and untouched(subs, made, row.i, row.x) and other(q, o, row, subs)
      if field then return {'other', (i - from) / 2 + 1, row.i, field} end
    end
  end
end
