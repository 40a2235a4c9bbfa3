#!lua flags=allow-oom
-- Replays or discards dead letters.
-- keys: of the queue
-- args: 1 the queue's number; 2 its rules (ended.lua); 3 "replay" or "discard";
--       then the messages
-- returns: "gone", or those that were dead letters
-- cost: some six commands per message
-- includes: keys, words, ended
if call('HGET', META, 'no') ~= ARGV[1] then return 'gone' end
local were = {}
for i = 4, #ARGV do
  local id = ARGV[i]
  local st = call('ZSCORE', DEAD, id) and unpacked(call('HGET', ST, id))
  if st and not (ARGV[3] == 'replay' and st.e) then -- what was erased has nothing to try again
    call('ZREM', DEAD, id)
    were[#were + 1] = id
    if ARGV[3] == 'replay' then
      st.z, st.a, st.f, st.l, st.x = 'waits', st.a + 1, 0, 0, 0
      call('ZADD', DUE, text(now), string.sub(call('HGET', MSG, id), 1, 1) .. ':' .. id)
      wake = true
    else
      st.z = 'discarded'
      kept[#kept + 1] = id
    end
    call('HSET', ST, id, pack(st))
  end
end
finish()
return were
