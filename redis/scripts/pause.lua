#!lua flags=allow-oom
-- Pauses or resumes a queue.
-- keys: of the queue; PAUSES, its pauses (pauses.lua)
-- args: number of the queue; is, before and ended as of pauses.lua
-- returns: "gone", or as pauses.lua
-- cost: at most six commands
local number, is, before, ended = unpack(ARGV)
-- includes: keys, pauses
local meta = call('HMGET', META, 'no', 'paused')
if meta[1] ~= number then return 'gone' end
local said, was = change('', is, before, ended)
if said ~= 'changed' then return {said, was} end
if is ~= '' then
  call('HSETNX', META, 'paused', text(now))
else
  call('HDEL', META, 'paused')
  ring(ASLEEP, BELL)
end
return {said, was}
