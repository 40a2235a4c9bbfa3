#!lua flags=allow-oom
-- Pauses or resumes a queue.
-- keys: of the queue
-- args: number of the queue; pause: "1" pauses, "" resumes
-- returns: "gone", or 1 if that changed the queue, else 0
-- cost: three commands
local number, pause = unpack(ARGV)
-- includes: keys
local meta = call('HMGET', META, 'no', 'paused')
if meta[1] ~= number then return 'gone' end
if pause == '1' then return call('HSETNX', META, 'paused', text(now)) end
local was = call('HDEL', META, 'paused')
ring(ASLEEP, BELL)
return was
