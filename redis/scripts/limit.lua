#!lua flags=allow-oom
-- Gives a queue these limits, for every subscription at one moment.
-- keys: of each subscription of the queue in turn
-- args: 1 the queue's number; 2 its rules (rules.lua); 3 its limits (limits.lua), or ""
-- returns: "gone" or "ok"
-- cost: four commands, and four per subscription; of a queue that looks at keys as many
--       more as keys wait for a rate or are in flight
-- includes: keys, rules, current, keyed
if ARGV[3] == '' then call('HDEL', META, 'limits') else call('HSET', META, 'limits', ARGV[3]) end
local rated = ARGV[3] ~= '' and unpacked(ARGV[3]).s
for at = 0, #KEYS - 1, rules.y and 41 or 31 do
  call('HDEL', KEYS[at + 29], 'mute', ARGV[3] == '' and 'full' or 'mute')
  if rules.y then -- what waits by the old limits is looked at anew
    LATER, AGAIN, HELD = KEYS[at + 35], KEYS[at + 36], KEYS[at + 37]
    if call('EXISTS', AGAIN) == 1 then
      call('ZUNIONSTORE', AGAIN, 2, AGAIN, LATER)
      call('UNLINK', LATER)
    elseif call('EXISTS', LATER) == 1 then
      call('RENAME', LATER, AGAIN)
    end
    line(AGAIN, call('HKEYS', HELD))
    if not rated then call('UNLINK', KEYS[at + 38]) end -- nobody would forget what keys have spent
  end
end
ring(0)
return 'ok'
