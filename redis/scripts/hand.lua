-- Hands out the messages that claim.lua or claim_keyed.lua chooses. It checks the call, then
-- defines expired and hand, which take a message each, and answer, which makes the reply.
local most = tonumber(most)
local meta, own = call('HMGET', META, 'paused', 'last', 'limits', 'rev'), call('HMGET', TALLY, 'no', 'full', 'fill', 'first', 'apart')
if own[1] ~= number or own[4] or (meta[4] or nil) ~= rules.w then return 'gone' end
if own[3] then return 'fill' end
local last = tonumber(meta[2])
local limits, full, said = meta[3] and unpacked(meta[3]), tonumber(own[2] or 0), meta[3] and 'limits' or ''
local ids, contents, others = {}, {}, {}

local function tell(delivery, id, content, st, due)
  others[#others + 1] = delivery
  others[#others + 1] = id
  others[#others + 1] = content
  others[#others + 1] = st or ''
  others[#others + 1] = due or ''
  others[#others + 1] = st and unpacked(st).l >= 2 and '1' or ''
end

local tag
if worker ~= '' then
  if not call('ZSCORE', LEASES, worker) then return 'join' end
  tag = worker .. ':' .. claim
  local before = call('HGET', CLAIM, tag)
  if before then
    local claim = unpacked(before)
    local deliveries, due = claim.d, claim.u or {}
    for i, held in ipairs(got(RUN, deliveries)) do
      if held then
        local id = string.match(held, '^[^/%z]+/(%d+)') or deliveries[i]
        tell(deliveries[i], id, call('HGET', MSG, id), call('HGET', ST, id), due[deliveries[i]])
      end
    end
    return {'', '-1', ids, contents, others, said}
  end
  if tonumber(call('HGET', NAMES, '#' .. worker) or 0) >= tonumber(claim) then
    if once == '1' then return {'', '-1', ids, contents, others, said} end
    return 'number'
  end
else
  tag = 'T' .. text(now)
end
if meta[1] then return {'', '-1', ids, contents, others, said} end
if limits then
  local due
  most, due = room(limits, full, most)
  if most < 1 then
    for _, key in pairs(rules.y and {TURN, FRESH} or READY) do
      if call('EXISTS', key) == 1 then mute(due) end
    end
    return {'', due and text(due - now) or '-1', ids, contents, others, 'reached'}
  end
end

local runs, deliveries, states = {}, {}, {}
local held_back -- due times by delivery; nil if there are none
local passing = 1000 -- about how many withdrawn and expired messages one call passes over

-- old returns whether a message of a queue with max_age is too old. Its age counts from its
-- id, which is the time of sending, or from a later time, g in its state: when it was due,
-- or was replayed. A message that was scheduled before the queue had a max_age has no state
-- before its first attempt: due is when it was due.
local function old(id, st, due)
  return now - (st and (unpacked(st).g or tonumber(id)) or tonumber(due or id)) >= rules.a
end

-- expired ends a waiting message if it is too old, and returns whether it is. The caller
-- removes it from where it waited.
local function expired(id, st, due)
  if not old(id, st, due) then return false end
  local s = st and unpacked(st) or {a = 1, f = 0, l = 0, x = 0}
  local story = s.s or {}
  story[#story + 1] = {a = s.a, o = 'expired', w = '', c = now, e = now}
  s.s, s.z, s.w = story, 'expired', nil
  states[#states + 1] = id
  states[#states + 1] = pack(s)
  kept[#kept + 1] = id
  counts.expired = counts.expired + 1
  passing = passing - 1
  return true
end

-- hand hands out a message. st is its state, nil before its first attempt; due its due time,
-- if it had one; key its key, if messages in flight are counted per key.
local function hand(id, content, st, due, key)
  local delivery, held = id, tag
  if st and once == '1' then -- it only has the time that old needs
    call('HDEL', ST, id)
    st = nil
  end
  if st then
    local s = unpacked(st)
    held = tag .. '/' .. id
    if s.z then -- it was handed out before
      last = math.max(last + 1, now)
      delivery = text(last)
    end
    s.d, s.w = delivery, nil
    states[#states + 1] = id
    states[#states + 1] = pack(s)
  end
  if due then
    held_back = held_back or {}
    held_back[delivery] = due
  end
  if key then held = held .. '\0' .. key end
  deliveries[#deliveries + 1] = delivery
  runs[#runs + 1] = delivery
  runs[#runs + 1] = held
  if st or due or rules.o then
    tell(delivery, id, content, st, due)
  else
    ids[#ids + 1] = delivery
    contents[#contents + 1] = content
  end
end

-- answer records the messages handed out and those that expired, and returns the reply. due is
-- the time of the next message if it hands out nothing, or nil.
local function answer(wants, due)
  if #deliveries > 0 then
    call('HSET', META, 'last', text(last))
    if limits and limits.r then call('HSET', TALLY, 'full', exactly(taken(limits.r, full, #deliveries))) end
    if once == '1' then
      local name = ''
      if worker ~= '' then
        name = call('HGET', NAMES, worker) or ''
        call('HSET', NAMES, '#' .. worker, claim)
      end
      local st = pack({a = 1, f = 0, l = 0, x = 0, z = 'handed_out', s = {{a = 1, o = 'handed_out', w = name, c = now, e = now}}})
      batches[tag] = {s = st, i = deliveries}
      counts.done = #deliveries
      if rules.r > 0 then
        for _, d in ipairs(deliveries) do
          kept[#kept + 1] = d
          states[#states + 1] = d
          states[#states + 1] = st
        end
      end
    else
      many('HSET', RUN, runs)
      if worker ~= '' then
        call('HSET', CLAIM, tag, pack({t = now, d = deliveries, u = held_back}))
        call('HSET', OPEN, tag, #deliveries)
        call('ZADD', CLAIMS, worker, tag)
        call('HSET', NAMES, '#' .. worker, claim)
      else
        local ends = text(now + lease)
        local timed = {}
        for _, d in ipairs(deliveries) do
          timed[#timed + 1] = ends
          timed[#timed + 1] = d
        end
        many('ZADD', TIMED, timed)
      end
    end
  end
  many('HSET', ST, states)
  if counts.done + counts.expired > 0 then
    know(kept)
    finish()
  end
  return {wants, #deliveries == 0 and due and text(math.max(0, due - now)) or '-1', ids, contents, others, said}
end
