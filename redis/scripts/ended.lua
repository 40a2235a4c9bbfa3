-- How deliveries end.
local counts = {done = 0, retried = 0, lost = 0, withdrawn = 0, expired = 0}
local holders, released, left, kept, batches = {}, {}, {}, {}, {}
local wake, losses = false, 0 -- losses includes those that became dead letters
local aside = {} -- for each message that was set aside its key, or ""

-- holder returns the holder of a delivery: the worker's name, the time of the claim, and how
-- many of its deliveries ended in this call.
local function holder(tag)
  local h = holders[tag]
  if not h then
    h = {open = 0}
    if string.sub(tag, 1, 1) == 'T' then
      h.at, h.name = tonumber(string.sub(tag, 2)), ''
    else
      local claim = call('HGET', CLAIM, tag)
      claim = claim and unpacked(claim) or {}
      h.at, h.dues = claim.t or now, claim.u
      h.name = call('HGET', NAMES, string.match(tag, '^[^:]+')) or ''
    end
    holders[tag] = h
  end
  return h
end

-- attempts returns n, b and m (rules.lua) for a message: its own (content.go), or those of
-- its kind, or those of its queue.
local function attempts(content)
  local size = string.byte(content, 2)
  local of = rules.i and rules.i[kindOf(content)]
  if size == 0 and not of then return rules end
  local own = {}
  if size > 0 then
    local last = 5 + struct.unpack('>I3', string.sub(content, 3, 5))
    own = unpacked(string.sub(content, last - size + 1, last))
  end
  of = of or rules
  return {n = own.n or of.n or rules.n, b = own.b or of.b or rules.b, m = own.m or of.m or rules.m}
end

-- ended ends a delivery whose value in RUN was held. s is {o outcome, e error, r receipt,
-- t terms, u duration in ms, a delay of a retry in µs, j jitter 0 to 1}. It returns the
-- outcome and the time of the next attempt, if there is one. A message that was set aside is
-- released. One that was cancelled while it ran becomes cancelled unless it is done.
local function ended(delivery, held, s)
  local key
  if rules.y then held, key = keyIn(held) end
  local tag, id = string.match(held, '^([^/]+)/(.+)$')
  if not tag then tag, id = held, delivery end
  local h = holder(tag)
  h.open = h.open + 1
  if key then freed[key] = (freed[key] or 0) + 1 end
  if string.sub(tag, 1, 1) == 'T' then released[#released + 1] = delivery end
  left[#left + 1] = delivery
  local before = call('HGET', ST, id)
  local st = before and unpacked(before) or {a = 1, f = 0, l = 0, x = 0}
  local outcome, alone, due = s.o, st.l >= 2, now
  local content = outcome ~= 'done' and outcome ~= 'dead' and call('HGET', MSG, id)
  local limit = content and attempts(content) or rules
  local apart = outcome == 'set_aside' and not rules.y
  if outcome == 'set_aside' then
    aside[#aside + 1] = rules.y and keyOf(content) or ''
    outcome = 'released'
  end
  if not before and h.dues then st.g = tonumber(h.dues[delivery] or nil) end -- if the queue gets a max_age
  local notes, last = st.n, st.s and st.s[#st.s]
  st.n = nil
  if outcome == 'lost' then losses = losses + 1 end
  if notes and notes.q and outcome ~= 'done' then
    outcome = 'cancelled'
  elseif outcome == 'lost' then
    -- A loss does not count if the attempt has advanced its checkpoint.
    if not (notes and notes.k) or last and last.k == notes.k then
      st.l = st.l + 1
      if alone then st.x = st.x + 1 end
    end
  elseif outcome == 'retried' then
    if s.a then
      due = now + s.a
    else
      due = now + math.floor(s.j * math.min(limit.m, limit.b * 2 ^ math.min(st.f, 40)))
    end
    st.f = st.f + 1
  elseif outcome == 'released' then
    due = now + (s.a or 0)
  end
  if (outcome == 'retried' or outcome == 'lost') and st.f + st.x >= limit.n then outcome = 'dead' end
  -- Only messages that are delivered again count as retried or lost.
  if outcome == 'retried' or outcome == 'lost' then counts[outcome] = counts[outcome] + 1 end
  st.d = nil
  if not before then call('ZADD', KNOWN, id, id) end
  if s.t and #s.t > 0 and not st.t and not select(2, wordsOf(call('HGET', MSG, id))) then
    st.t = s.t
    for _, term in ipairs(s.t) do call('ZADD', WORDS, 0, entry('t' .. term, id)) end
  end
  if outcome ~= 'released' or notes then
    local n = notes or {}
    st.s = told(st.s or {}, {a = st.a, o = outcome, w = h.name, c = h.at, e = now, d = s.u, m = s.e, r = s.r, k = n.k, p = n.p, x = n.x, g = n.g, q = n.q})
  end
  if outcome == 'done' or outcome == 'cancelled' then
    if outcome == 'done' then counts.done = counts.done + 1 end
    st.z = outcome
    kept[#kept + 1] = id
    call('HSET', ST, id, pack(st))
    return outcome
  elseif outcome == 'dead' then
    st.z = 'dead'
    if rules.x then
      st.k = key
      call('HINCRBY', STOPPED, key, 1)
    end
    call('HSET', ST, id, pack(st))
    call('ZADD', DEAD, id, id)
    return outcome
  end
  if outcome ~= 'released' then st.a = st.a + 1 end
  st.z = 'waits'
  if apart then st.w = apartAs(st, id, content) end
  call('HSET', ST, id, pack(st))
  local priority = string.sub(content, 1, 1)
  if apart then
    putApart(st.w)
  elseif st.l >= 2 then
    call('ZADD', ALONE, ranked(0, due), priority .. ':' .. id)
  else
    call('ZADD', DUE, ranked(priority, due), priority .. ':' .. id)
  end
  if rules.o then call('ZADD', WAIT, 0, placed(key, id)) end -- its place is before later messages
  wake = true
  return outcome, due
end

-- endedPlainly ends deliveries that are done and have nothing else to record. It returns 1
-- for each that was held, else 0.
local function endedPlainly(deliveries)
  local was, states = {}, {}
  local held = got(RUN, deliveries)
  local twice = {}
  for i, d in ipairs(deliveries) do
    local tag, key = held[i], nil
    if tag and rules.y then tag, key = keyIn(tag) end
    if not tag or twice[d] then
      was[i] = 0
    else
      was[i], twice[d] = 1, true
      if string.find(tag, '/', 1, true) then
        ended(d, held[i], {o = 'done'})
      else -- a first attempt: its message has the same id and no state
        local h = holder(tag)
        h.open = h.open + 1
        counts.done = counts.done + 1
        if key then freed[key] = (freed[key] or 0) + 1 end
        if string.sub(tag, 1, 1) == 'T' then released[#released + 1] = d end
        left[#left + 1] = d
        local b = batches[tag]
        if not b then -- one record for all deliveries of a claim
          b = {s = pack({a = 1, f = 0, l = 0, x = 0, z = 'done', s = {{a = 1, o = 'done', w = h.name, c = h.at, e = now}}}), i = {}}
          batches[tag] = b
        end
        b.i[#b.i + 1] = d
        if rules.r > 0 then
          states[#states + 1] = d
          states[#states + 1] = b.s
          kept[#kept + 1] = d
        end
      end
    end
  end
  many('HSET', ST, states)
  if rules.r > 0 then know(kept) end
  return was
end

-- settledAt returns when the messages of an entry of PAST were settled. A queue that had no
-- retention before has batches there, too.
local function settledAt(e)
  if string.sub(e, 1, 1) ~= 'B' then return tonumber(string.match(e, '^%d+')) end
  return unpacked(unpacked(string.sub(e, 2)).s).s[1].e
end

-- forget removes up to most of the oldest settled messages that the rules do not keep. came
-- is the number added by this call. It returns how many it removed.
local function forget(came, most)
  local old = {}
  if rules.r > 0 then
    local n = 0
    for _, e in ipairs(call('LRANGE', PAST, 0, most - 1)) do
      if settledAt(e) > now - rules.r then break end
      n = n + 1
      old[#old + 1] = string.match(e, '^%d+:(%d+)$')
    end
    if n > 0 then call('LTRIM', PAST, n, -1) end
  else
    local have = call('HINCRBY', TALLY, 'kept', came)
    local before = have
    for _ = 1, most do
      local e = have > rules.k and call('LINDEX', PAST, 0)
      if not e then break end
      local n = 1
      if string.sub(e, 1, 1) == 'B' then
        n = #unpacked(string.sub(e, 2)).i
      else
        old[#old + 1] = string.match(e, ':(%d+)$')
      end
      if have - n < rules.k then
        if n == 1 then old[#old] = nil end
        break
      end
      call('LPOP', PAST)
      have = have - n
    end
    if have < before then call('HINCRBY', TALLY, 'kept', have - before) end
  end
  unword(old)
  passed(old, false)
  many('HDEL', ST, old)
  many('ZREM', KNOWN, old)
  return #old
end

-- finish writes the changes that all ended deliveries have in common. A message that ended
-- before it was handed out is in kept alone and has no holder. limits are the queue's, or
-- nil: if they bound deliveries in flight, a freed place wakes workers.
local function finish(limits)
  many('HDEL', RUN, left)
  if rules.y and free() then wake = true end
  many('ZREM', TIMED, released)
  for tag, h in pairs(holders) do
    if string.sub(tag, 1, 1) ~= 'T' and h.open > 0 and call('HINCRBY', OPEN, tag, -h.open) <= 0 then
      call('HDEL', OPEN, tag)
      call('HDEL', CLAIM, tag)
      call('ZREM', CLAIMS, tag)
    end
  end
  local came, entries = 0, {}
  if rules.r == 0 then
    -- Of a queue without retention only outcomes are kept, one record per batch. A message
    -- that is found by a word keeps all but its payload.
    local found, bare = parted(kept)
    passed(bare, false)
    for _, b in pairs(batches) do
      local with, rest = parted(b.i)
      for _, m in ipairs(with) do
        found[#found + 1] = m
        kept[#kept + 1] = m[1]
        call('HSET', ST, m[1], b.s)
        call('ZADD', KNOWN, m[1], m[1])
      end
      b.i = rest
      passed(rest, false)
      came = came + #rest
      if #rest > 0 then entries[#entries + 1] = 'B' .. pack(b) end
    end
    local ids, contents = {}, {}
    for i, m in ipairs(found) do
      ids[i], contents[m[1]] = m[1], m[2]
    end
    passed(ids, true, contents)
  else
    passed(kept, true)
  end
  came = came + #kept
  for _, id in ipairs(kept) do entries[#entries + 1] = text(now) .. ':' .. id end
  many('RPUSH', PAST, entries)
  if came > 0 then forget(came, 2 * came + 2) end -- bounded, so that no call is long
  for name, n in pairs(counts) do
    if n > 0 then call('HINCRBY', TALLY, name, n) end
  end
  if limits and #left > 0 and unpacked(limits).c then
    call('HDEL', TALLY, 'mute')
    wake = true
  end
  if wake then ring(ASLEEP, BELL) end
end
