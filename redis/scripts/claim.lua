#!lua flags=allow-oom
-- Hands out messages: to a worker, until its lease of the queue ends, or to a
-- receiver until a time. A worker's claim that comes again under its number
-- gets what that has and is not settled.
-- keys: of the queue
-- args: 1 the queue's number; 2 its rules (ended.lua); 3 the most; 4 the
--       priorities in order, such as "0123"; 5 "1" if one that must run alone may
--       come; 6 the worker and 7 its number, or "" and the lease in µs; 8 "1" if the
--       queue hands out at most once: handing out settles
-- returns: "gone"; "join": the worker has no lease of the queue (any more);
--       "number": the number is not above the last; or a list: "1" if one waits
--       to run alone, µs until the next is due ("-1": none known), deliveries of first
--       attempts (their messages have the same id), their contents, and a list of
--       the others, six each: delivery, message, content, state, when it was due
--       (or ""), alone; and "limits" if the queue has some, "reached" if they let
--       nothing through
-- cost: some twelve commands a call; per message one field got and one set, one
--       popped; of what was due two and a half more
-- includes: keys, limits, words, ended
local once = ARGV[8] == '1'
local most, worker = tonumber(ARGV[3]), ARGV[6]
local meta = call('HMGET', META, 'no', 'paused', 'last', 'limits', 'full')
if meta[1] ~= ARGV[1] then return 'gone' end
local last = tonumber(meta[3])
local limits, full, said = meta[4] and unpacked(meta[4]), tonumber(meta[5] or 0), meta[4] and 'limits' or ''
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
  tag = worker .. ':' .. ARGV[7]
  local before = call('HGET', CLAIM, tag)
  if before then
    local deliveries = unpacked(before).d
    for i, held in ipairs(got(RUN, deliveries)) do
      if held then
        local id = string.match(held, '/(.+)$') or deliveries[i]
        tell(deliveries[i], id, call('HGET', MSG, id), call('HGET', ST, id))
      end
    end
    return {'', '-1', ids, contents, others, said}
  end
  if tonumber(call('HGET', NAMES, '#' .. worker) or 0) >= tonumber(ARGV[7]) then
    if once then return {'', '-1', ids, contents, others, said} end
    return 'number'
  end
else
  tag = 'T' .. text(now)
end
if meta[2] then return {'', '-1', ids, contents, others, said} end
if limits then
  local due
  most, due = room(limits, full, most)
  if most < 1 then
    for _, key in pairs(READY) do
      if call('EXISTS', key) == 1 then mute(due) end
    end
    return {'', due and text(due - now) or '-1', ids, contents, others, 'reached'}
  end
end

local runs, deliveries, states, dues = {}, {}, {}, {}
local function hand(id, content, st, due)
  local delivery, held = id, tag
  if st then
    last = math.max(last + 1, now)
    delivery, held = text(last), tag .. '/' .. id
    local s = unpacked(st)
    s.d = delivery
    states[#states + 1] = id
    states[#states + 1] = pack(s)
  end
  deliveries[#deliveries + 1] = delivery
  runs[#runs + 1] = delivery
  runs[#runs + 1] = held
  if st or due then
    tell(delivery, id, content, st, due)
  else
    ids[#ids + 1] = delivery
    contents[#contents + 1] = content
  end
end

-- take hands out those of a sorted set that are given: score and member in turn.
local function take(key, from, to, entries)
  local members, of = {}, {}
  for i = from, to do
    members[#members + 1] = entries[i][1]
    of[#of + 1] = string.sub(entries[i][1], 3)
  end
  if #of == 0 then return end
  many('ZREM', key, members)
  local content, state = got(MSG, of), got(ST, of)
  local plain = {} -- known only as it was due later
  for i, id in ipairs(of) do
    if not state[i] then plain[#plain + 1] = id end
  end
  many('ZREM', KNOWN, plain)
  for i, id in ipairs(of) do
    if content[i] then hand(id, content[i], state[i], entries[from + i - 1][2]) end
  end
end

local wants = ''
local alone = call('ZRANGEBYSCORE', ALONE, '-inf', text(now), 'WITHSCORES', 'LIMIT', 0, 1)
if #alone > 0 then
  if ARGV[5] == '1' then
    take(ALONE, 1, 1, {{alone[1], alone[2]}})
  else
    wants = '1'
  end
end
if #deliveries == 0 then
  local waiting = false
  for _, key in pairs(READY) do waiting = waiting or call('EXISTS', key) == 1 end
  -- Of what is due a part of each priority is looked at, so that the first goes first.
  local found = call('ZRANGEBYSCORE', DUE, '-inf', text(now), 'WITHSCORES', 'LIMIT', 0, most + 100)
  if #found > 0 then
    local rank, due = {}, {}
    for i = 1, 4 do rank[string.sub(ARGV[4], i, i)] = i end
    for i = 1, #found, 2 do due[#due + 1] = {found[i], found[i + 1], #due} end
    table.sort(due, function(a, b)
      local p, q = rank[string.sub(a[1], 1, 1)], rank[string.sub(b[1], 1, 1)]
      if p ~= q then return p < q end
      return a[3] < b[3]
    end)
    take(DUE, 1, math.min(#due, waiting and math.ceil(most / 2) or most), due)
  end
  if waiting then
    local stale = call('EXISTS', STALE) == 1
    for i = 1, 4 do
      local key = READY[string.sub(ARGV[4], i, i)]
      while #deliveries < most do
        local popped = call('LPOP', key, most - #deliveries)
        if not popped then break end
        local content = got(MSG, popped)
        local skip = stale and call('SMISMEMBER', STALE, unpack(popped)) or {}
        for j, id in ipairs(popped) do
          if skip[j] == 1 then
            call('SREM', STALE, id)
          elseif content[j] then
            hand(id, content[j])
          end
        end
      end
    end
  end
end
if #deliveries == 0 then
  local next = call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
  local other = call('ZRANGE', ALONE, 0, 0, 'WITHSCORES')
  local due = tonumber(next[2] or other[2])
  if due and other[2] and wants == '' then due = math.min(due, tonumber(other[2])) end
  if wants == '1' then due = tonumber(next[2]) end
  return {wants, due and text(math.max(0, due - now)) or '-1', ids, contents, others, said}
end
call('HSET', META, 'last', text(last))
if limits and limits.r then call('HSET', META, 'full', exactly(taken(limits.r, full, #deliveries))) end
if once then
  local name = ''
  if worker ~= '' then
    name = call('HGET', NAMES, worker) or ''
    call('HSET', NAMES, '#' .. worker, ARGV[7])
  end
  local st = pack({a = 1, f = 0, l = 0, x = 0, z = 'handed_out', s = {{a = 1, o = 'handed_out', w = name, c = now, e = now}}})
  batches[tag] = {s = st, i = deliveries}
  counts.done = #deliveries
  if rules.r > 0 then
    for i, d in ipairs(deliveries) do
      kept[i] = d
      states[#states + 1] = d
      states[#states + 1] = st
    end
    many('HSET', ST, states)
    know(kept)
  end
  finish()
  return {wants, '-1', ids, contents, others, said}
end
many('HSET', RUN, runs)
many('HSET', ST, states)
if worker ~= '' then
  call('HSET', CLAIM, tag, pack({t = now, d = deliveries}))
  call('HSET', OPEN, tag, #deliveries)
  call('ZADD', CLAIMS, worker, tag)
  call('HSET', NAMES, '#' .. worker, ARGV[7])
else
  local ends = text(now + ARGV[7])
  local timed = {}
  for _, d in ipairs(deliveries) do
    timed[#timed + 1] = ends
    timed[#timed + 1] = d
  end
  many('ZADD', TIMED, timed)
end
return {wants, '-1', ids, contents, others, said}
