#!lua flags=allow-oom
-- Records outcomes. It reports deliveries that were settled, rescued or never handed out as
-- such and changes nothing, so that it can be repeated. The exception is a first attempt that
-- was done, but rescued before that was recorded: its message is not delivered again unless it
-- has been already (lateDone).
-- keys: of the subscription
-- args: number of the subscription; rules; plainly, the number of deliveries that are done
--       and have nothing else to record; those deliveries; then settlements, each packed with
--       its delivery as d (settle.go)
-- returns: "gone", or a list: for each plain delivery "1" if it was settled, else "0", as one
--       text; and for each other one its outcome, "" if it was not settled, and its due time or ""
-- cost: per plain delivery one field read and two removed (with retention one more written
--       and pushed, and the same to forget an older one); per other one some six commands
--       more. Independent of the backlog and of the messages in flight.
local number, rules, plainly = unpack(ARGV, 1, 3)
-- includes: keys, rules, limits, keyed, words, holders, apart, notes, ended
local own, meta = call('HMGET', TALLY, 'no', 'first'), call('HMGET', META, 'limits', 'rev')
if own[1] ~= number or own[2] or (meta[2] or nil) ~= rules.w then return 'gone' end

-- lateDone records a message as done whose first attempt was lost before its worker settled
-- it as done, if it still waits for its second attempt. So it is not handled twice. The first
-- attempt stays recorded as lost. The delivery of a later attempt does not identify its
-- message any more.
local function lateDone(id)
  local before = call('HGET', ST, id)
  local st = before and unpacked(before)
  local last = st and st.s and st.s[#st.s]
  if not last or last.o ~= 'lost' or last.a ~= 1 or st.z ~= 'waits' or st.d or st.a ~= 2 then return end
  local content = call('HGET', MSG, id)
  if not content then return end
  local member, key = string.sub(content, 1, 1) .. ':' .. id, rules.y and keyOf(content)
  -- Of an ordered key only the first message, so that none is recorded before an earlier one.
  if rules.o and (tonumber(call('HGET', HELD, key) or 0) > 0 or waiting(key, 1)[1] ~= placed(key, id)) then return end
  local waited = call('ZREM', DUE, member) + call('ZREM', ALONE, member) + (st.w and leftApart({st.w}) or 0)
  if rules.y then
    waited = waited + call('ZREM', WAIT, placed(key, id))
    if waited > 0 and goOn(key) then wake = true end
  end
  if waited == 0 then return end -- it was purged
  st.z, st.q, st.w = 'done', now, nil
  call('HSET', ST, id, pack(st))
  kept[#kept + 1] = id
  counts.done = counts.done + 1
end

-- giveBack gives back the tokens that claims took for messages that were set aside. Other messages
-- of their keys need not wait for the next tokens then.
local function giveBack(limits)
  if limits.r then
    call('HSET', TALLY, 'full', exactly(taken(limits.r, tonumber(call('HGET', TALLY, 'full') or 0), -#aside)))
    call('HDEL', TALLY, 'mute')
  end
  if not limits.s then return end
  for _, key in ipairs(aside) do
    local full = tonumber(call('ZSCORE', SPENT, key) or nil)
    if full then call('ZADD', SPENT, exactly(taken(limits.s, full, -1)), key) end
    if full and goOn(key) then wake = true end
  end
end

local plain = {}
local n = tonumber(plainly)
for i = 4, 3 + n do plain[#plain + 1] = ARGV[i] end
local was = endedPlainly(plain)
for i, d in ipairs(plain) do
  if was[i] == 0 then lateDone(d) end
end
if #ARGV > 3 + n then many('HDEL', RUN, left) end -- now, because one may be settled again below
local answers = {}
for i = 4 + n, #ARGV do
  local s = unpacked(ARGV[i])
  local held = call('HGET', RUN, s.d)
  local outcome, due
  if not held and s.o == 'done' then lateDone(s.d) end
  if held then
    call('HDEL', RUN, s.d) -- now, because a call may settle it twice
    outcome, due = ended(s.d, held, s)
  end
  answers[#answers + 1] = outcome or ''
  answers[#answers + 1] = due and text(due) or ''
end
if meta[1] and #aside > 0 then giveBack(unpacked(meta[1])) end
finish(meta[1])
return {table.concat(was), answers}
