#!lua flags=allow-oom
-- Pauses or resumes a queue.
-- keys: of the queue
-- args: 1 the queue's number; 2 "1" to pause, "" to resume
-- returns: "gone", or 1 if that changed anything, else 0
-- cost: three commands
-- includes: keys
local meta = call('HMGET', META, 'no', 'paused')
if meta[1] ~= ARGV[1] then return 'gone' end
if ARGV[2] == '1' then return call('HSETNX', META, 'paused', text(now)) end
local was = call('HDEL', META, 'paused')
ring(0)
return was
