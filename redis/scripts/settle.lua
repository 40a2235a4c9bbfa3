#!lua flags=allow-oom
-- Records outcomes. What was settled before, rescued, or never handed out is
-- answered and changes nothing, so it may be repeated; but what was done and rescued
-- before that was told is not handed out again, if it was not yet (lateDone).
-- keys: of the queue
-- args: 1 the queue's number; 2 its rules (rules.lua); 3 how many deliveries are
--       done and say nothing more; those; then settlements, each packed with d,
--       its delivery
-- returns: "gone", or for each of the plain ones 1 or 0 as text, then a list of the
--       others: outcome ("" if it was not settled) and when it is due ("" if not)
-- cost: per plain message one field got and two removed (with retention one more set
--       and pushed, and the same to forget an older one); per other some six
--       commands more. Not in what waits or is in flight.
-- includes: keys, rules, keyed, words, holders, ended
local own = call('HMGET', TALLY, 'no', 'first')
if own[1] ~= ARGV[1] or own[2] then return 'gone' end

-- lateDone takes back what a message waits for whose first attempt was lost before it was
-- told that it was done: so it does not happen twice. The attempt stays lost. A later
-- attempt's message is not known by its delivery any more.
local function lateDone(id)
  local before = call('HGET', ST, id)
  local st = before and unpacked(before)
  local last = st and st.s and st.s[#st.s]
  if not last or last.o ~= 'lost' or last.a ~= 1 or st.z ~= 'waits' or st.d or st.a ~= 2 then return end
  local content = call('HGET', MSG, id)
  if not content then return end
  local member, key = string.sub(content, 1, 1) .. ':' .. id, rules.y and keyOf(content)
  -- Of a key in order only what is first: it would be on record before what comes before it.
  if rules.o and (tonumber(call('HGET', HELD, key) or 0) > 0 or waiting(key, 1)[1] ~= placed(key, id)) then return end
  local waited = call('ZREM', DUE, member) + call('ZREM', ALONE, member)
  if rules.y then
    waited = waited + call('ZREM', WAIT, placed(key, id))
    if waited > 0 and goOn(key) then wake = true end
  end
  if waited == 0 then return end -- it was purged
  st.z, st.q = 'done', now
  call('HSET', ST, id, pack(st))
  kept[#kept + 1] = id
  counts.done = counts.done + 1
end

local plain = {}
local n = tonumber(ARGV[3])
for i = 1, n do plain[i] = ARGV[3 + i] end
local was = endedPlainly(plain)
for i, d in ipairs(plain) do
  if was[i] == 0 then lateDone(d) end
end
if #ARGV > 3 + n then many('HDEL', RUN, left) end -- now, for one may come again below
local answers = {}
for i = 4 + n, #ARGV do
  local s = unpacked(ARGV[i])
  local held = call('HGET', RUN, s.d)
  local outcome, due
  if not held and s.o == 'done' then lateDone(s.d) end
  if held then
    call('HDEL', RUN, s.d) -- now, for it may come twice in one call
    outcome, due = ended(s.d, held, s)
  end
  answers[#answers + 1] = outcome or ''
  answers[#answers + 1] = due and text(due) or ''
end
finish(call('HGET', META, 'limits'))
return {table.concat(was), answers}
