#!lua flags=allow-oom
-- Replays or discards dead letters.
-- keys: of the queue
-- args: 1 the queue's number; 2 its rules (ended.lua); 3 "replay" or "discard";
--       then the messages
-- returns: "gone", or those that were dead letters
-- cost: some six commands per message
-- includes: keys, ended
if call('HGET', META, 'no') ~= ARGV[1] then return 'gone' end
local were = {}
for i = 4, #ARGV do
  local id = ARGV[i]
  if call('ZREM', DEAD, id) == 1 then
    were[#were + 1] = id
    local st = unpacked(call('HGET', ST, id))
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
