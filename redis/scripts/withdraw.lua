#!lua flags=allow-oom
-- Takes a message back that waits, or moves the time of its next attempt.
-- keys: of the queue
-- args: 1 the queue's number; 2 its rules (rules.lua); 3 "cancel" or "move"; 4 the
--       message; 5 µs at which it is due
-- returns: "gone", or 1 if it waited, else 0
-- cost: some ten commands
-- includes: keys, rules, current, keyed, words, holders, ended
if call('HGET', TALLY, 'first') then return 0 end -- it has ended
local id = ARGV[4]
local content, before = call('HGET', MSG, id), call('HGET', ST, id)
local st = before and unpacked(before) or {a = 1, f = 0, l = 0, x = 0}
if not content or st.d or (st.z and st.z ~= 'waits') then return 0 end
if not markOf(call('HGET', HOLDERS, id), me) then return 0 end
local member = string.sub(content, 1, 1) .. ':' .. id
local key = rules.y and keyOf(content)
-- Of what is being purged, too, by which it would be cancelled afterwards.
local waited = call('ZREM', DUE, member) + call('ZREM', ALONE, member) + call('ZREM', KEYS[21], member) + call('ZREM', KEYS[22], member)
if key then
  waited = waited + call('ZREM', WAIT, placed(key, id)) + call('ZREM', ASIDE, placed(key, id))
  if waited == 0 then return 0 end
  if goOn(key) then wake = true end
elseif waited == 0 then
  if before or call('HEXISTS', RUN, id) == 1 then return 0 end
  call('SADD', STALE, id) -- a claim that meets it in its list leaves it out
end
if not before then call('ZADD', KNOWN, id, id) end
if ARGV[3] == 'cancel' then
  st.z, st.q = 'cancelled', now
  call('HSET', ST, id, pack(st))
  kept[1] = id
  counts.withdrawn = 1
else
  local due = math.max(now, tonumber(ARGV[5]))
  if st.l >= 2 then
    call('ZADD', ALONE, ranked(0, due), member)
  else
    call('ZADD', DUE, ranked(string.sub(member, 1, 1), due), member)
  end
  wake = true
end
finish()
return 1
