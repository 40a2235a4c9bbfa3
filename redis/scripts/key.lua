#!lua flags=allow-oom
-- Pauses or resumes a key for every subscription in one step.
-- keys: those of each subscription of the queue in turn
-- args: number of the queue; rules; key; pause: "1" pauses, "" resumes
-- returns: "gone", or 1 if that changed the key, else 0
-- cost: three commands, and three per subscription
local number, rules, key, pause = unpack(ARGV)
-- The places of keys among those of one subscription (keys.lua, keyed.lua).
local AT_WAIT, AT_TURN, AT_ASIDE_WAIT = 34, 35, 43
-- includes: keys, rules, current, keyed
if pause == '1' then return call('ZADD', PAUSED, 'NX', 0, key) end
local was = call('ZREM', PAUSED, key)
local wake = false
for at = 0, #KEYS - 1, AT_ASIDE_WAIT do
  WAIT, TURN = KEYS[at + AT_WAIT], KEYS[at + AT_TURN]
  if goOn(key) then wake = true end
end
if wake then ring(ASLEEP, BELL) end
return was
