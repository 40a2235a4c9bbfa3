#!lua flags=allow-oom
-- Sets the limits of a queue for every subscription in one step.
-- keys: those of each subscription of the queue in turn
-- args: number of the queue; rules; limits (limits.lua), or ""
-- returns: "gone" or "ok"
-- cost: four commands, and four per subscription; if the queue looks at keys, as many more as
--       keys wait for a rate or are in flight
local number, rules, limits = unpack(ARGV)
-- The places of keys among those of one subscription (keys.lua, keyed.lua).
local AT_TALLY, AT_BELL, AT_LATER, AT_AGAIN, AT_HELD, AT_SPENT, AT_ASIDE_WAIT = 29, 33, 37, 38, 39, 40, 43
-- includes: keys, rules, current, keyed
if limits == '' then call('HDEL', META, 'limits') else call('HSET', META, 'limits', limits) end
local rated = limits ~= '' and unpacked(limits).s
for at = 0, #KEYS - 1, rules.y and AT_ASIDE_WAIT or AT_BELL do
  call('HDEL', KEYS[at + AT_TALLY], 'mute', limits == '' and 'full' or 'mute')
  if rules.y then -- check keys that wait because of the old limits again
    LATER, AGAIN, HELD = KEYS[at + AT_LATER], KEYS[at + AT_AGAIN], KEYS[at + AT_HELD]
    if call('EXISTS', AGAIN) == 1 then
      call('ZUNIONSTORE', AGAIN, 2, AGAIN, LATER)
      call('UNLINK', LATER)
    elseif call('EXISTS', LATER) == 1 then
      call('RENAME', LATER, AGAIN)
    end
    line(AGAIN, call('HKEYS', HELD))
    if not rated then call('UNLINK', KEYS[at + AT_SPENT]) end -- no claim would remove entries of SPENT any more
  end
end
ring(ASLEEP, BELL)
return 'ok'
