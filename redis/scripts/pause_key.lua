#!lua flags=allow-oom
-- Pauses or resumes a key for every subscription in one step.
-- keys: those of each subscription of the queue in turn; PAUSES, its pauses (pauses.lua)
-- args: number of the queue; rules; key; is, before and ended as of pauses.lua
-- returns: "gone", or as pauses.lua
-- cost: six commands, and three per subscription
local number, rules, key, is, before, ended = unpack(ARGV)
-- The places of keys among those of one subscription (keys.lua, keyed.lua).
local AT_WAIT, AT_TURN, AT_ASIDE_WAIT = 34, 35, 43
-- includes: keys, rules, current, keyed, pauses
local said, was = change(key, is, before, ended)
if said ~= 'changed' then return {said, was} end
if is ~= '' then
  call('ZADD', PAUSED, 'NX', 0, key)
  return {said, was}
end
call('ZREM', PAUSED, key)
local wake = false
for at = 0, #KEYS - 2, AT_ASIDE_WAIT do
  WAIT, TURN = KEYS[at + AT_WAIT], KEYS[at + AT_TURN]
  if goOn(key) then wake = true end
end
if wake then ring(ASLEEP, BELL) end
return {said, was}
