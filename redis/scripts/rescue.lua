#!lua flags=allow-oom
-- Hands out anew what one worker whose lease of the queue has ended, or leases
-- by time that have ended, left unsettled.
-- keys: of the queue
-- args: 1 the queue's number; 2 its rules (rules.lua); 3 the most deliveries
-- returns: "gone", or how many were lost: there may be more
-- cost: two commands where there is nothing; some ten per lost delivery; ten claims at most
-- includes: keys, rules, keyed, words, holders, ended
local own = call('HMGET', TALLY, 'no', 'first')
if own[1] ~= ARGV[1] or own[2] then return 'gone' end
local limits = call('HGET', META, 'limits')
local most, claims = tonumber(ARGV[3]), 0
-- lose loses what of deliveries is not settled, the last first: what its worker still
-- settles before the next step comes before what is lost then, so that no message of a
-- key in order, which are all of one claim, is on record before an earlier one. It returns
-- whether that is all of them.
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
    holder(tag).open = 1000000000 -- whatever is counted, nothing of it is open any more
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
