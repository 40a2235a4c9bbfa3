#!lua flags=allow-oom
-- Makes what a queue needs in its own slot, once: the registry (enroll.lua) is
-- what says that there is such a queue. Who comes late leaves a later queue of its name
-- alone.
-- keys: of the queue
-- args: 1 the queue's number; 2 its limits (limits.lua), or ""; 3 when it was created
-- returns: "ok"
-- cost: three commands
-- includes: keys
local meta = call('HMGET', META, 'no', 'made')
if meta[1] ~= ARGV[1] and tonumber(meta[2] or 0) <= tonumber(ARGV[3]) then
  call('UNLINK', unpack(KEYS)) -- of a queue that was dropped half
  call('HSET', META, 'no', ARGV[1], 'made', ARGV[3], 'last', text(now))
  if ARGV[2] ~= '' then call('HSET', META, 'limits', ARGV[2]) end
end
return 'ok'
