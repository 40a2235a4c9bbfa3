#!lua flags=allow-oom
-- Pauses or resumes a key, for every subscription at one moment.
-- keys: of each subscription of the queue in turn
-- args: 1 the queue's number; 2 its rules (rules.lua); 3 the key; 4 "1" to pause, "" to
--       resume
-- returns: "gone", or 1 if that changed anything, else 0
-- cost: three commands, and three per subscription
-- includes: keys, rules, current, keyed
if ARGV[4] == '1' then return call('ZADD', PAUSED, 'NX', 0, ARGV[3]) end
local was = call('ZREM', PAUSED, ARGV[3])
local wake = false
for at = 0, #KEYS - 1, 41 do
  WAIT, TURN = KEYS[at + 32], KEYS[at + 33]
  if goOn(ARGV[3]) then wake = true end
end
if wake then ring(0) end
return was
