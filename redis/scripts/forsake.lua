#!lua flags=allow-oom
-- Sees to it that a subscription which was enrolled and is not there does not come any
-- more under that number, so that it can be struck off the registry (strike.lua): who
-- enrolled it and is slow enrolls it anew.
-- keys: of the queue
-- args: 1 the queue's number; 2 the subscription's and 3 when it was enrolled; 4 µs for
--       which it may still be on its way
-- returns: "gone", "there", "young" (it may be on its way) or "ok"
-- cost: three commands
-- includes: keys
local meta = call('HMGET', META, 'no', 'subs', 'ended')
if meta[1] ~= ARGV[1] then return 'gone' end
for _, s in ipairs(meta[2] and unpacked(meta[2]) or {}) do
  if s.i == ARGV[2] then return 'there' end
end
if now - ARGV[3] < tonumber(ARGV[4]) then return 'young' end
call('HSET', META, 'ended', text(math.max(tonumber(ARGV[3]), tonumber(meta[3] or -1))))
return 'ok'
