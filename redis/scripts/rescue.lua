#!lua flags=allow-oom
-- Makes unsettled deliveries available again: those of received deliveries whose leases
-- have ended, and those of one worker whose lease of the subscription has ended.
-- keys: of the subscription
-- args: number of the subscription; rules; most, the maximum of deliveries
-- returns: "gone", or how many deliveries were lost; there may be more
-- cost: two commands if there are none; some ten per lost delivery; at most ten claims
local number, rules, most = unpack(ARGV)
-- includes: keys, rules, keyed, words, holders, apart, notes, ended
local own, meta = call('HMGET', TALLY, 'no', 'first'), call('HMGET', META, 'limits', 'rev')
if own[1] ~= number or own[2] or (meta[2] or nil) ~= rules.w then return 'gone' end
local limits = meta[1]
local most, claims = tonumber(most), 0
-- lose ends the unsettled ones of deliveries as lost, the last first, and returns whether it
-- came to the first. All messages of an ordered key in flight are of one claim. If most ends
-- the loop, the worker may still settle the earlier ones, so that no message is recorded
-- before an earlier one of its key.
local function lose(deliveries, why)
  local held = got(RUN, deliveries)
  for i = #deliveries, 1, -1 do
    if held[i] then
      if most == 0 then return false end
      ended(deliveries[i], held[i], {o = 'lost', e = why})
      most = most - 1
    end
  end
  return true
end
local timed = call('ZRANGEBYSCORE', TIMED, '-inf', '(' .. text(now), 'LIMIT', 0, most)
if #timed > 0 then lose(timed, 'its lease ended before it was settled') end
local overdue = call('ZRANGEBYSCORE', LEASES, '-inf', '(' .. text(now), 'LIMIT', 0, 1)
if #overdue > 0 then
  local worker, all = overdue[1], true
  for _, tag in ipairs(call('ZRANGEBYSCORE', CLAIMS, worker, worker, 'LIMIT', 0, 11)) do
    local claim = call('HGET', CLAIM, tag)
    all = claims < 10 and lose(claim and unpacked(claim).d or {}, 'its worker was lost: no heartbeat came within its lease')
    if not all then break end
    claims = claims + 1
    holder(tag).open = 1000000000 -- removes the claim, whatever OPEN says
  end
  finish(limits)
  if all then
    call('ZREM', LEASES, worker)
    call('HDEL', NAMES, worker, '#' .. worker)
  end
else
  finish(limits)
end
return losses
