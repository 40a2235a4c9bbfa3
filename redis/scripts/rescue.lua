#!lua flags=allow-oom
-- Hands out anew what one worker whose lease of the queue has ended, or leases
-- by time that have ended, left unsettled.
-- keys: of the queue
-- args: 1 the queue's number; 2 its rules (rules.lua); 3 the most claims and
--       deliveries to look at
-- returns: "gone", or how many were lost
-- cost: two commands where there is nothing; some ten per lost delivery
-- includes: keys, rules, keyed, words, holders, ended
local own = call('HMGET', TALLY, 'no', 'first')
if own[1] ~= ARGV[1] or own[2] then return 'gone' end
local limits = call('HGET', META, 'limits')
local most = tonumber(ARGV[3])
local function lose(deliveries, why)
  for i, held in ipairs(got(RUN, deliveries)) do
    if held then ended(deliveries[i], held, {o = 'lost', e = why}) end
  end
end
local timed = call('ZRANGEBYSCORE', TIMED, '-inf', '(' .. text(now), 'LIMIT', 0, most)
if #timed > 0 then lose(timed, 'its lease ended before it was settled') end
local overdue = call('ZRANGEBYSCORE', LEASES, '-inf', '(' .. text(now), 'LIMIT', 0, 1)
if #overdue > 0 then
  local worker = overdue[1]
  local claims = call('ZRANGEBYSCORE', CLAIMS, worker, worker, 'LIMIT', 0, 10)
  for _, tag in ipairs(claims) do
    local claim = call('HGET', CLAIM, tag)
    if claim then lose(unpacked(claim).d, 'its worker was lost: no heartbeat came within its lease') end
    holder(tag).open = 1000000000 -- whatever is counted, nothing of it is open any more
  end
  finish(limits)
  if #claims < 10 then
    call('ZREM', LEASES, worker)
    call('HDEL', NAMES, worker, '#' .. worker)
  end
else
  finish(limits)
end
return counts.lost
