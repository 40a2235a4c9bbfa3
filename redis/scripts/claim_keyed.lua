#!lua flags=allow-oom
-- Hands out messages of a queue whose keys take turns, like claim.lua.
-- keys: of the subscription
-- args: number of the subscription; rules; most, the maximum of messages; priorities in the
--       order to take them (unused here); idle: "1" if a message that must run alone can be
--       handed out; worker and the number of its claim, or "" and "" for a receiver; lease of
--       a receiver in µs; once: "1" if the queue delivers at most once; kinds (unused here)
-- returns: "gone"; "fill" (fill.lua has not finished); "join" (the worker has no lease of the
--       subscription); "number" (claim is not above the worker's last); or a list: "1" if a
--       message waits to run alone; µs until the next message is due ("-1": unknown); the
--       deliveries of first attempts, whose ids are those of their messages; their contents;
--       a list of all other deliveries, six values each: delivery, message, content, state,
--       due time or "", "1" if it runs alone; and "limits" if the queue has some, or
--       "reached" if they allow nothing
-- cost: some twenty commands a call; one range per key that has a turn; per message one field
--       read, one written and two members removed; one or two more of each if messages are
--       due or keys have a rate; with a max_age a range and a read per key more, and per
--       expired message as much as to settle one. Independent of the backlog and of the
--       number of keys.
local number, rules, most, priorities, idle, worker, claim, lease, once, kinds = unpack(ARGV)
-- includes: keys, rules, limits, keyed, words, holders, apart, notes, ended, hand

local counted = rules.o or limits and limits.k -- whether messages in flight are counted per key
local rate = limits and limits.s
local pausing = call('EXISTS', PAUSED) == 1
local stopping = (rules.x or rules.z) and call('EXISTS', STOPPED) == 1
local dues, alones = call('EXISTS', DUE) == 1, call('EXISTS', ALONE) == 1
local bound = most + 100 -- how many keys one call checks in vain
local chosen, removed, held, spent, later = {}, {}, {}, {}, {}

-- standing returns for each key: how many more of its messages can be handed out, how many
-- are in flight, the time of its rate, and whether the rate allows no more. A key that waits
-- for its rate is added to later.
local function standing(names)
  local n = counted and got(HELD, names) or {}
  local paused = pausing and call('ZMSCORE', PAUSED, unpack(names)) or {}
  local stopped = stopping and got(STOPPED, names) or {}
  local full = rate and call('ZMSCORE', SPENT, unpack(names)) or {}
  local may, rated = {}, {}
  for i, key in ipairs(names) do
    n[i], full[i] = tonumber(n[i] or 0), tonumber(full[i] or 0)
    local m = math.huge
    if paused[i] or stopped[i] then
      m = 0
    elseif rules.o then
      m = n[i] > 0 and 0 or worker == '' and 1 or m
    end
    if m > 0 and limits and key ~= '' then
      if limits.k then m = math.min(m, limits.k - n[i]) end
      if rate and m > 0 then
        local has = tokens(rate, full[i])
        rated[i] = has <= m
        m = math.min(m, has)
        if m < 1 then
          later[#later + 1] = text(come(rate, full[i]))
          later[#later + 1] = key
        end
      end
    end
    may[i] = m
  end
  return may, n, full, rated
end

-- count adds c messages of a key to those in flight, and takes their tokens.
local function count(key, c, n, full)
  most = most - c
  if counted then
    held[#held + 1] = key
    held[#held + 1] = n + c
  end
  if rate and key ~= '' then
    full = taken(rate, full, c)
    spent[#spent + 1] = exactly(full)
    spent[#spent + 1] = key
  end
  return full
end

-- ripe returns how many of members, which are one key's in order, can be handed out now. In
-- an ordered queue, a message that waits for a time or must run alone holds up later ones.
local function ripe(members)
  if not rules.o or #members == 0 or not (dues or alones) then return #members end
  local marks = {}
  for j, m in ipairs(members) do marks[j] = '0:' .. idOf(m) end
  local due = dues and call('ZMSCORE', DUE, unpack(marks)) or {}
  local alone = alones and call('ZMSCORE', ALONE, unpack(marks)) or {}
  local passed, n = {}, #marks
  for j, mark in ipairs(marks) do
    if alone[j] or due[j] and tonumber(due[j]) > now then
      n = j - 1
      break
    end
    if due[j] then passed[#passed + 1] = mark end
  end
  many('ZREM', DUE, passed)
  return n
end

-- young returns the first n waiting messages of a key that are not too old, and whether it
-- passed over so many that the key must be checked again. In an ordered queue it also ends
-- those that wait for a time or must run alone, so that they hold up no later ones.
local function young(key, n)
  local members = waiting(key, n)
  if not rules.a then return members end
  repeat
    local messages, fit, passed = {}, {}, {}
    for j, m in ipairs(members) do messages[j] = idOf(m) end
    for j, state in ipairs(got(ST, messages)) do
      if #fit == n then break end
      if expired(messages[j], state) then
        passed[#passed + 1] = members[j]
        if rules.o then
          call('ZREM', DUE, '0:' .. messages[j])
          call('ZREM', ALONE, '0:' .. messages[j])
        end
      else
        fit[#fit + 1] = members[j]
      end
    end
    many('ZREM', WAIT, passed)
    if #passed == 0 or #fit == n then return fit end
    if passing <= 0 then return fit, true end
    members = waiting(key, math.max(n, 100))
  until false
end

-- joined adds keys that may have more messages to the end of the line. In a fair queue, keys
-- without a turn join FRESH.
local function joined(names)
  if #names == 0 or not rules.f then return line(TURN, names) end
  local new = {}
  for i, turn in ipairs(call('ZMSCORE', TURN, unpack(names))) do
    if not turn then new[#new + 1] = names[i] end
  end
  line(FRESH, new)
end

-- popped removes and returns the first k keys of a line.
local function popped(of, k)
  local names, all = {}, call('ZPOPMIN', of, k)
  for i = 1, #all, 2 do names[#names + 1] = all[i] end
  return names
end

-- noted writes the messages chosen and the counts changed so far.
local function noted()
  many('ZREM', WAIT, removed)
  many('HSET', HELD, held)
  many('ZADD', SPENT, spent)
  removed, held, spent = {}, {}, {}
end

-- turns gives the first keys of a line their turns, with at most n messages in total.
local function turns(of, n)
  local k = math.min(n, call('ZCARD', of), bound)
  if k < 1 then return end
  bound = bound - k
  local names = popped(of, k)
  local may, inFlight, full, rated = standing(names)
  local again, few = {}, {}
  for i, key in ipairs(names) do
    local share = math.floor(n / k) + (i <= n % k and 1 or 0)
    local m = math.min(may[i], share)
    if m > 0 then
      local members, cut = young(key, m + 1)
      local more = cut or #members > m
      members[m + 1] = nil
      local c = ripe(members)
      for j = 1, c do
        chosen[#chosen + 1] = {idOf(members[j]), key}
        removed[#removed + 1] = members[j]
      end
      if c > 0 then
        local f = count(key, c, inFlight[i], full[i])
        if more and not rules.o then
          if c < may[i] then
            -- A key with few messages does not wait behind keys with many.
            if rules.f and call('ZLEXCOUNT', WAIT, '[' .. key .. '\0', '(' .. key .. '\1') < 16 + c then
              few[#few + 1] = key
            else
              again[#again + 1] = key
            end
          elseif rated[i] then -- not checked again: rounding could leave a token
            later[#later + 1] = text(come(rate, f))
            later[#later + 1] = key
          end
        end
      elseif cut then
        again[#again + 1] = key
      end
    end
  end
  noted()
  line(TURN, again)
  line(FRESH, few)
end

-- Check keys again whose rate allows more by now, or whose limits changed.
if call('EXISTS', AGAIN) == 1 then joined(popped(AGAIN, bound)) end
local expected = call('ZRANGEBYSCORE', LATER, '-inf', text(now), 'LIMIT', 0, bound)
many('ZREM', LATER, expected)
joined(expected)
if rate then many('ZREM', SPENT, call('ZRANGEBYSCORE', SPENT, '-inf', text(now), 'LIMIT', 0, 2 * bound)) end

-- Due messages join the waiting ones of their keys. In an ordered queue they are there.
if dues then
  local marks = call('ZRANGEBYSCORE', DUE, '-inf', text(now), 'LIMIT', 0, bound)
  local messages, names, wait = {}, {}, {}
  for i, mark in ipairs(marks) do messages[i] = string.sub(mark, 3) end
  if rules.a then -- those that were scheduled before the queue had a max_age
    local aged, state = {}, got(ST, messages)
    for i, mark in ipairs(marks) do
      if not state[i] then
        aged[#aged + 1] = messages[i]
        aged[#aged + 1] = pack({a = 1, f = 0, l = 0, x = 0, g = dueOf(tonumber(call('ZSCORE', DUE, mark)))})
      end
    end
    many('HSET', ST, aged)
  end
  for i, content in ipairs(got(MSG, messages)) do
    if content then
      local key = keyOf(content)
      names[#names + 1] = key
      wait[#wait + 1] = 0
      wait[#wait + 1] = placed(key, messages[i])
    end
  end
  many('ZREM', DUE, marks)
  if not rules.o then many('ZADD', WAIT, wait) end
  joined(names)
end

-- Of the messages that must run alone, take the first that its key allows. Check the others
-- again a second later.
local wants = ''
local lone
if alones then
  local marks = call('ZRANGEBYSCORE', ALONE, '-inf', text(now), 'LIMIT', 0, 20)
  local messages, names = {}, {}
  for i, mark in ipairs(marks) do messages[i] = string.sub(mark, 3) end
  local contents, state = got(MSG, messages), rules.a and got(ST, messages)
  for i, content in ipairs(contents) do names[i] = content and keyOf(content) or '' end
  local may, n, full = {}, {}, {}
  if #names > 0 then may, n, full = standing(names) end
  for i, id in ipairs(messages) do
    local member = placed(names[i], id)
    if not contents[i] then
      call('ZREM', ALONE, marks[i])
    elseif may[i] < 1 or rules.o and waiting(names[i], 1)[1] ~= member then
      call('ZADD', ALONE, text(now + 1000000), marks[i])
    elseif rules.a and expired(id, state[i]) then
      call('ZREM', ALONE, marks[i])
      if rules.o then
        call('ZREM', WAIT, member)
        goOn(names[i])
      end
    elseif idle == '1' then
      lone = true
      call('ZREM', ALONE, marks[i])
      if rules.o then removed[1] = member end
      chosen[1] = {id, names[i]}
      count(names[i], 1, n[i], full[i])
      break
    else
      wants = '1'
      break
    end
  end
  noted()
end

while not lone and most > 0 and bound > 0 and passing > 0 and call('EXISTS', TURN, FRESH) > 0 do
  turns(FRESH, call('EXISTS', TURN) == 1 and math.ceil(most / 2) or most)
  turns(TURN, most)
end
many('ZADD', LATER, later)

local messages = {}
for i, c in ipairs(chosen) do messages[i] = c[1] end
local content, state = got(MSG, messages), got(ST, messages)
local plain = {} -- in KNOWN only because they waited
for i, id in ipairs(messages) do
  if not state[i] or once == '1' then plain[#plain + 1] = id end
end
many('ZREM', KNOWN, plain)
for i, c in ipairs(chosen) do
  if content[i] then
    hand(c[1], content[i], state[i] or nil, nil, counted and c[2])
  elseif counted then -- its message is gone, so it does not count
    freed[c[2]] = (freed[c[2]] or 0) + 1
  end
end
free()
local due
if #deliveries == 0 then
  due = nextDue()
  for _, key in ipairs({LATER, wants == '' and ALONE or LATER}) do
    local next = tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
    if next and (not due or next < due) then due = next end
  end
  if call('EXISTS', TURN, FRESH, AGAIN) > 0 then due = now end
end
return answer(wants, due)
