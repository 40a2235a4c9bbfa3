-- Unique keys. UNIQUE is a hash of the queue: a key to its last holder, packed: i message, u
-- until when it holds the key (finished if nil), a the attempt from which it holds it, x letters
-- of the subscriptions whose filters reject it; and "@" and each message that may need its key
-- again to that key, packed: k, u, x. Whether the last holder still holds its key follows from
-- its state, so that nothing has to release it. subs are the queue's subscriptions: at, the place
-- before their keys, letter, and age, the queue's max_age in µs if one that is too old counts as
-- finished. made has when further ones were made.
local AT_RUN, AT_STALE, AT_ASIDE_DUE, AT_APART, AT_ASIDE_APART = 4, 11, 21, 31, 32

-- standing returns the state of a message in a subscription, nil if it has none (any more), its
-- attempt, and whether that has failed before. A message that was replayed and not handed out since
-- is ready, as when it is told. One that is older than sub.age is expired, before a claim finds that
-- (hand.lua); one that was handed out before is not.
local function standing(sub, id)
  local before = call('HGET', KEYS[sub.at + AT_ST], id)
  local st = before and unpacked(before) or {a = 1, f = 0, l = 0}
  if st.z and st.z ~= 'waits' then return st.z end
  local content = call('HGET', KEYS[sub.at + AT_MSG], id)
  local held = call('HGET', KEYS[sub.at + AT_HOLDERS], id) or '@+'
  local at = content and string.find(held, sub.letter, 1, true)
  if not at or string.sub(held, at + 1, at + 1) ~= '+' then return nil end
  local failed, last = st.f + st.l > 0, st.s and st.s[#st.s]
  if call('HEXISTS', KEYS[sub.at + AT_RUN], st.d or id) == 1 then return 'running', st.a, failed end
  if last and last.o == 'dead' then return 'ready', st.a, false end
  if failed or st.a > 1 then return 'retrying', st.a, failed end
  local member = string.sub(content, 1, 1) .. ':' .. id
  local due = call('ZSCORE', KEYS[sub.at + AT_DUE], member)
  due = due and dueOf(tonumber(due))
  if sub.age and now - (st.g or due or tonumber(id)) >= sub.age then return 'expired' end
  return due and due > now and 'scheduled' or 'ready', 1, false
end

local function waitsIn(z) return z == 'ready' or z == 'scheduled' or z == 'retrying' end

-- never returns whether a subscription without a state for a message never had it: it was made
-- later, or its filter rejects it (x).
local function never(sub, made, id, x)
  return made[sub.letter] and made[sub.letter] > tonumber(id) or x and string.find(x, sub.letter, 1, true)
end

local foremost = {running = 1, retrying = 2, ready = 3, scheduled = 4, dead = 5}

-- holds returns the state by which a message holds its key, or nil. What the subscriptions did
-- before a replay (row.a > 1) does not count: a replayed message has attempts, and no failures since.
local function holds(subs, made, row)
  local best, begun, fresh
  for _, sub in ipairs(subs) do
    local z, a, failed = standing(sub, row.i)
    if foremost[z] and (z ~= 'dead' or row.u == 'resolved') and not (best and foremost[best] < foremost[z]) then best = z end
    if waitsIn(z) and a <= row.a and a >= math.min(row.a, 2) and not failed then
      fresh = true
    elseif row.a > 1 then
      begun = begun or z == 'running' and a > 1 and not failed
    elseif z == 'running' or waitsIn(z) or z ~= 'cancelled' and z ~= 'expired' and (z or not never(sub, made, row.i, row.x)) then
      begun = true
    end
  end
  if row.u == 'started' and (begun or not fresh) then return nil end
  return best
end

-- untouched returns whether a message waits and no subscription was handed it, and else the
-- place among subs of the first that prevents it, and its state there.
local function untouched(subs, made, id, x)
  local waits
  for i, sub in ipairs(subs) do
    local z, a, failed = standing(sub, id)
    if waitsIn(z) and a == 1 and not failed then
      waits = true
    elseif z ~= 'cancelled' and z ~= 'expired' and (z or not never(sub, made, id, x)) then
      return false, i, z == 'ready' and 'replayed' or z or 'done'
    end
  end
  if waits then return true end
  return false, 1, standing(subs[1], id) or 'done'
end

-- kept returns a content (content.go) with the options of the attempts of another one, unless it
-- has some.
local function kept(content, was)
  local size, _, x, y, z = string.byte(was, 2), string.byte(content, 2, 5)
  if size == 0 or string.byte(content, 2) > 0 then return content end
  local n, m = x * 65536 + y * 256 + z, string.byte(was, 3) * 65536 + string.byte(was, 4) * 256 + string.byte(was, 5)
  local all = n + size
  return string.sub(content, 1, 1) .. string.char(size, math.floor(all / 65536), math.floor(all / 256) % 256, all % 256)
    .. string.sub(content, 6, 5 + n) .. string.sub(was, 6 + m - size, 5 + m) .. string.sub(content, 6 + n)
end

-- rewrite replaces the content of an untouched message. It moves the message if it gets another
-- due time or priority, or was set aside because of its kind, else it keeps its place. aged: the queue has a max_age.
local function rewrite(subs, id, content, words, due, aged, keyed)
  local was
  for _, sub in ipairs(subs) do
    if waitsIn(standing(sub, id)) then
      was = was or call('HGET', KEYS[sub.at + AT_MSG], id)
      local member, priority = string.sub(was, 1, 1) .. ':' .. id, string.sub(content, 1, 1)
      local gone, come = {}, {}
      for _, word in ipairs((wordsOf(was))) do gone[#gone + 1] = entry(word, id) end
      for _, word in ipairs(words) do
        come[#come + 1] = '0'
        come[#come + 1] = entry(word, id)
      end
      many('ZREM', KEYS[sub.at + AT_WORDS], gone)
      many('ZADD', KEYS[sub.at + AT_WORDS], come)
      local st = call('HGET', KEYS[sub.at + AT_ST], id)
      st = st and unpacked(st)
      local apart = st and st.w
      if due or apart or priority ~= string.sub(was, 1, 1) then
        local before = call('ZSCORE', KEYS[sub.at + AT_DUE], member)
        local waited = call('ZREM', KEYS[sub.at + AT_DUE], member) + call('ZREM', KEYS[sub.at + AT_ASIDE_DUE], member)
        if keyed then
          waited = 1
          call('ZREM', KEYS[sub.at + AT_WAIT], keyed .. '\0' .. string.format('%016.0f', id))
          call('ZREM', KEYS[sub.at + AT_ASIDE_WAIT], keyed .. '\0' .. string.format('%016.0f', id))
        end
        if apart then
          waited = 1
          call('ZREM', KEYS[sub.at + AT_APART], apart)
          call('ZREM', KEYS[sub.at + AT_ASIDE_APART], apart)
          if call('EXISTS', KEYS[sub.at + AT_APART]) == 0 then call('HDEL', KEYS[sub.at + AT_TALLY], 'apart') end
          st.w = nil
        end
        if waited == 0 then call('SADD', KEYS[sub.at + AT_STALE], id) end -- claims skip it in its ready list
        local at = due or before and dueOf(tonumber(before)) or now
        call('ZADD', KEYS[sub.at + AT_DUE], ranked(priority, at), priority .. ':' .. id)
        call('ZADD', KEYS[sub.at + AT_KNOWN], id, id)
        if aged and due then
          st = st or {a = 1, f = 0, l = 0, x = 0}
          st.g = due
        end
        if st then call('HSET', KEYS[sub.at + AT_ST], id, pack(st)) end
      end
    end
  end
  call('HSET', KEYS[subs[1].at + AT_MSG], id, kept(content, was))
end

-- keyOf returns the key in a content.
local function keyOf(content)
  local _, raw = reader(content)
  local word, n = raw()
  return n > 0 and string.sub(word, -n) or ''
end

-- madeOf returns when the further subscriptions of a queue were made, by their letters.
local function madeOf(at)
  local made = {}
  for _, s in ipairs(unpacked(call('HGET', KEYS[at + AT_META], 'subs') or pack({}))) do made[s.h] = s.c end
  return made
end

-- forgetKeys removes the keys of up to most messages of the line that do not need them any more. It
-- keeps those of new ones, which are not stored yet.
local function forgetKeys(unique, line, most, subs, made, new)
  for _ = 1, most do
    local old = call('LPOP', line)
    if not old then return end
    local its = call('HGET', unique, '@' .. old)
    if its and (new[old] or holds(subs, made, {i = old, u = 'resolved', a = 1})) then
      call('RPUSH', line, old)
    elseif its then
      its = unpacked(its)
      call('HDEL', unique, '@' .. old)
      local row = call('HGET', unique, its.k)
      if row and unpacked(row).i == old then call('HDEL', unique, its.k) end
    end
  end
end
