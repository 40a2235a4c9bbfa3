#!lua flags=no-writes
-- Lists the unsettled deliveries of a worker.
-- keys: of the subscription
-- args: worker; last, the number of the last claim to consider
-- returns: "join" if the worker has no lease of the subscription, or the deliveries
-- cost: grows with the number of deliveries that the worker holds
local worker, last = unpack(ARGV)
-- includes: keys
if not call('ZSCORE', LEASES, worker) then return 'join' end
local open = {}
for _, tag in ipairs(call('ZRANGEBYSCORE', CLAIMS, worker, worker)) do
  if tonumber(string.match(tag, ':(%d+)$')) <= tonumber(last) then
    local claim = call('HGET', CLAIM, tag)
    local deliveries = claim and unpacked(claim).d or {}
    for i, held in ipairs(got(RUN, deliveries)) do
      if held then open[#open + 1] = deliveries[i] end
    end
  end
end
return open
