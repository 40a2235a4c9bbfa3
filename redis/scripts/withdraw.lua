#!lua flags=allow-oom
-- Cancels a message, or moves the time of its next attempt. One that is handed out is cancelled
-- by a note of its delivery, which the end of the delivery reads (ended.lua).
-- keys: of the subscription
-- args: number of the subscription; rules; action: "cancel" or "move"; id of the message; due
--       time in µs
-- returns: "gone", or 1 if the message was waiting; 2 if it is handed out and was cancelled by
--       this call, 3 if by an earlier one; else 0
-- cost: some ten commands
local number, rules, action, id, due = unpack(ARGV)
-- includes: keys, rules, current, keyed, words, holders, apart, notes, ended
if call('HGET', TALLY, 'first') then return 0 end -- the subscription has ended
local content, before = call('HGET', MSG, id), call('HGET', ST, id)
local st = before and unpacked(before) or {a = 1, f = 0, l = 0, x = 0}

-- request cancels a message whose delivery d is held. Heartbeats and extensions find d in the
-- tally.
local function request(d)
  local held = call('HGET', RUN, d)
  if not held then return 0 end
  if not before then
    local tag, key = string.match(held, '^(%Z+)(.*)$')
    st.d = d
    call('HSET', RUN, d, tag .. '/' .. id .. key)
    call('ZADD', KNOWN, id, id)
  end
  st.n = st.n or {}
  if st.n.q then return 3 end
  st.n.q = now
  call('HSET', ST, id, pack(st))
  local all = stillHeld(call('HGET', TALLY, 'cancels'))
  all[#all + 1] = d
  call('HSET', TALLY, 'cancels', pack(all))
  return 2
end

if content and action == 'cancel' then
  if st.d then return request(st.d) end
  if not before and call('HEXISTS', RUN, id) == 1 then return request(id) end
end
if not content or st.d or (st.z and st.z ~= 'waits') then return 0 end
if not markOf(call('HGET', HOLDERS, id), me) then return 0 end
local member = string.sub(content, 1, 1) .. ':' .. id
local key, apart = rules.y and keyOf(content), st.w
-- Also from the messages set aside for a purge, which would cancel it afterwards.
local waited = call('ZREM', DUE, member) + call('ZREM', ALONE, member) + call('ZREM', ASIDE_DUE, member) + call('ZREM', ASIDE_ALONE, member)
if apart then
  waited = waited + leftApart({apart}) + call('ZREM', ASIDE_APART, apart)
  st.w = nil
end
if key then
  waited = waited + call('ZREM', WAIT, placed(key, id)) + call('ZREM', ASIDE_WAIT, placed(key, id))
  if waited == 0 then return 0 end
  if goOn(key) then wake = true end
elseif waited == 0 then
  if before or call('HEXISTS', RUN, id) == 1 then return 0 end
  call('SADD', STALE, id) -- claims skip it in its ready list
end
if not before then call('ZADD', KNOWN, id, id) end
if action == 'cancel' then
  st.z, st.q = 'cancelled', now
  call('HSET', ST, id, pack(st))
  kept[1] = id
  counts.withdrawn = 1
else
  local due = math.max(now, tonumber(due))
  if rules.a or before then st.g = due end -- its age counts from then (hand.lua)
  if rules.a or before or apart then call('HSET', ST, id, pack(st)) end
  if st.l >= 2 then
    call('ZADD', ALONE, ranked(0, due), member)
  else
    call('ZADD', DUE, ranked(string.sub(member, 1, 1), due), member)
  end
  if rules.o then call('ZADD', WAIT, 0, placed(key, id)) end -- its place is before later messages
  wake = true
end
finish()
return 1
