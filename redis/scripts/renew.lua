#!lua flags=allow-oom
-- Takes over the options that a queue has in the registry since they were changed (revise.lua),
-- for every subscription in one step. From then on no script of a caller that has older options
-- does anything (current.lua).
-- keys: those of each subscription of the queue in turn
-- args: number of the queue; rules; limits (limits.lua), or ""
-- returns: "gone" or "ok"
-- cost: five commands, and five per subscription; if the queue looks at keys, as many more as
--       keys wait for a rate or are in flight; when a retention ends some 1,000 records more
local number, rules, limits = unpack(ARGV)
-- The places of keys among those of one subscription (keys.lua, keyed.lua).
local AT_PAST, AT_TALLY, AT_BELL, AT_LATER, AT_AGAIN, AT_HELD, AT_SPENT, AT_ASIDE_WAIT = 19, 29, 33, 37, 38, 39, 40, 43
-- includes: keys, rules, keyed
local is = call('HMGET', META, 'no', 'readers', 'rev')
if is[1] ~= number or (is[2] or nil) ~= rules.v then return 'gone' end
if tonumber(is[3] or 0) >= tonumber(rules.w) then return 'ok' end
call('HSET', META, 'rev', rules.w)
if limits == '' then call('HDEL', META, 'limits') else call('HSET', META, 'limits', limits) end
local rated = limits ~= '' and unpacked(limits).s
for at = 0, #KEYS - 1, rules.y and AT_ASIDE_WAIT or AT_BELL do
  call('HDEL', KEYS[at + AT_TALLY], 'mute', limits == '' and 'full' or 'mute')
  if rules.r > 0 then
    call('HDEL', KEYS[at + AT_TALLY], 'kept')
  elseif call('HEXISTS', KEYS[at + AT_TALLY], 'kept') == 0 then -- a queue without retention counts the messages that it keeps; batches are among the oldest
    local kept = call('LLEN', KEYS[at + AT_PAST])
    for _, e in ipairs(call('LRANGE', KEYS[at + AT_PAST], 0, rules.k)) do
      if string.sub(e, 1, 1) == 'B' then kept = kept + #unpacked(string.sub(e, 2)).i - 1 end
    end
    call('HSET', KEYS[at + AT_TALLY], 'kept', text(kept))
  end
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
