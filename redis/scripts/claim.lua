#!lua flags=allow-oom
-- Hands out messages to a worker, until its lease of the subscription ends, or to a
-- receiver, until a time. A worker can repeat a claim under its number and gets those of its
-- deliveries that are not settled.
-- keys: of the subscription
-- args: number of the subscription; rules; most, the maximum of messages; priorities in the
--       order to take them, such as "0123", followed by "1" if due messages get the larger
--       half of an odd number, else "0"; idle: "1" if a message that must run alone can be
--       handed out; worker and the number of its claim, or "" and "" for a receiver; lease of
--       a receiver in µs; once: "1" if the queue delivers at most once; kinds: those of which
--       it also hands out messages that were set aside, packed, or "" for all
-- returns: "gone"; "fill" (fill.lua has not finished); "join" (the worker has no lease of the
--       subscription); "number" (claim is not above the worker's last); or a list: "1" if a
--       message waits to run alone; µs until the next message is due ("-1": unknown); the
--       deliveries of first attempts, whose ids are those of their messages; their contents;
--       a list of all other deliveries, six values each: delivery, message, content, state,
--       due time or "", "1" if it runs alone; and "limits" if the queue has some, or
--       "reached" if they allow nothing
-- cost: some twelve commands a call, and five more if messages are or fall due; per message
--       one field read, one written and one popped; per message of a paused kind five more; per due message two and a half more; per
--       expired message as much as to settle one; while messages are set aside, two commands
--       more per kind that was set aside, or that the worker handles if those are fewer, and
--       per such message two reads more
local number, rules, most, priorities, idle, worker, claim, lease, once, kinds = unpack(ARGV)
-- includes: keys, rules, limits, keyed, words, holders, apart, handled, notes, ended, hand

-- rests sets a message aside if its kind is paused, and returns whether it did. The caller
-- removes it from where it waited. due is when it was due, if it was scheduled.
local function rests(id, content, st, due)
  if not rules.q[kindOf(content)] then return false end
  local s = st and unpacked(st) or {a = 1, f = 0, l = 0, x = 0, g = tonumber(due or nil)}
  s.z, s.w = 'waits', apartAs(s, id, content)
  states[#states + 1] = id
  states[#states + 1] = pack(s)
  if not st or once == '1' then call('ZADD', KNOWN, id, id) end
  putApart(s.w)
  passing = passing - 1
  return true
end

-- take hands out members of a sorted set, given as members and scores in turn.
local function take(key, from, to, entries)
  local members, of = {}, {}
  for i = from, to do
    members[#members + 1] = entries[2 * i - 1]
    of[#of + 1] = string.sub(entries[2 * i - 1], 3)
  end
  if #of == 0 then return end
  many('ZREM', key, members)
  local content, state = got(MSG, of), got(ST, of)
  local plain = {} -- in KNOWN only because they were due later
  for i, id in ipairs(of) do
    if not state[i] or once == '1' then plain[#plain + 1] = id end
  end
  many('ZREM', KNOWN, plain)
  for i, id in ipairs(of) do
    local due = text(entries[2 * (from + i - 1)] % STEP)
    if content[i] and not (rules.q and rests(id, content[i], state[i], due)) and not (rules.a and expired(id, state[i], due)) then
      hand(id, content[i], state[i], due)
    end
  end
end

-- separate hands out up to n messages that were set aside and lie between bounds (handled).
local function separate(bounds, n)
  for _, b in ipairs(bounds) do
    while n > 0 and passing > 0 do
      local members, of = firstApart(b[1], b[2], n), {}
      if #members == 0 then break end
      leftApart(members)
      for i, m in ipairs(members) do of[i] = idApart(m) end
      local content, state = got(MSG, of), got(ST, of)
      if once == '1' then many('ZREM', KNOWN, of) end -- its state ends with it
      for i, id in ipairs(of) do
        if content[i] and not (rules.a and expired(id, state[i])) then
          hand(id, content[i], state[i])
          n = n - 1
        end
      end
    end
  end
end

local apart = own[5] and call('EXISTS', APART) == 1
local kinds = kinds ~= '' and unpacked(kinds) or nil
local wants = ''
local alone = call('ZRANGEBYSCORE', ALONE, '-inf', text(now), 'WITHSCORES', 'LIMIT', 0, 1)
if #alone > 0 then
  local id = string.sub(alone[1], 3)
  local content = rules.q and call('HGET', MSG, id)
  if idle == '1' or rules.a and old(id, call('HGET', ST, id)) or content and rules.q[kindOf(content)] then
    take(ALONE, 1, 1, alone)
  else
    wants = '1'
  end
end
if apart and #deliveries == 0 and wants == '' and firstApart('[1', '+', 1)[1] then
  for _, b in ipairs(handled(kinds, '1', rules.q)) do
    local first
    repeat -- over those that are too old
      first = firstApart(b[1], b[2], 1)[1]
      local id = first and rules.a and idApart(first)
      local gone = id and expired(id, call('HGET', ST, id))
      if gone then leftApart({first}) end
    until not gone or passing <= 0
    if first and passing > 0 then
      if idle == '1' then separate({b}, 1) else wants = '1' end
      break
    end
  end
end
if #deliveries == 0 then
  local others = apart and handled(kinds, '0', rules.q) or {}
  separate(others, math.floor((most + string.sub(priorities, 5)) / 2)) -- each side gets its half
  local dues, stale = call('EXISTS', DUE) == 1, call('EXISTS', STALE) == 1

  -- fresh hands out up to n messages of a ready list. It passes over withdrawn and expired
  -- ones.
  local function fresh(key, n)
    while n > 0 and passing > 0 do
      local popped = call('LPOP', key, n)
      if not popped then return end
      local content = got(MSG, popped)
      local skip = stale and call('SMISMEMBER', STALE, unpack(popped)) or {}
      for j, id in ipairs(popped) do
        if skip[j] == 1 then
          call('SREM', STALE, id)
          passing = passing - 1
        elseif content[j] and not (rules.q and rests(id, content[j])) and not (rules.a and expired(id)) then
          hand(id, content[j])
          n = n - 1
        end
      end
    end
  end

  for i = 1, 4 do
    local left = most - #deliveries
    if left == 0 or passing <= 0 then break end
    local p = string.sub(priorities, i, i)
    local due = dues and call('ZRANGEBYSCORE', DUE, text(p * STEP), ranked(p, now), 'WITHSCORES', 'LIMIT', 0, left) or {}
    if #due > 0 and call('EXISTS', READY[p]) == 1 then -- each gets its half, and the rest of the other half
      local half = math.min(#due / 2, math.floor((left + string.sub(priorities, 5)) / 2))
      take(DUE, 1, half, due)
      fresh(READY[p], most - #deliveries)
      take(DUE, half + 1, math.min(#due / 2, half + most - #deliveries), due)
    else
      take(DUE, 1, #due / 2, due)
      fresh(READY[p], most - #deliveries)
    end
  end
  separate(others, most - #deliveries) -- and the rest of the other half
end
local due
if #deliveries == 0 then
  local lone
  due, lone = nextDue(), wants == '' and tonumber(call('ZRANGE', ALONE, 0, 0, 'WITHSCORES')[2])
  if lone and not (due and due < lone) then due = lone end
  if passing <= 0 then due = now end
end
return answer(wants, due)
