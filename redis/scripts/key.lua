#!lua flags=allow-oom
-- Pauses or resumes a key.
-- keys: of the queue
-- args: 1 the queue's number; 2 its rules (rules.lua); 3 the key; 4 "1" to pause, "" to
--       resume
-- returns: "gone", or 1 if that changed anything, else 0
-- cost: six commands
-- includes: keys, rules, current, keyed
if ARGV[4] == '1' then return call('ZADD', PAUSED, 'NX', 0, ARGV[3]) end
local was = call('ZREM', PAUSED, ARGV[3])
if goOn(ARGV[3]) then ring() end
return was
