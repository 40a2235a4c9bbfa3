#!lua flags=no-writes
-- Lists a worker's deliveries of the queue that are not settled.
-- keys: of the queue
-- args: 1 the worker; 2 the last number of claims that count
-- returns: "join" if the worker has no lease of the queue, or the deliveries
-- cost: grows with what the worker holds
-- includes: keys
if not call('ZSCORE', LEASES, ARGV[1]) then return 'join' end
local open = {}
for _, tag in ipairs(call('ZRANGEBYSCORE', CLAIMS, ARGV[1], ARGV[1])) do
  if tonumber(string.match(tag, ':(%d+)$')) <= tonumber(ARGV[2]) then
    local claim = call('HGET', CLAIM, tag)
    local deliveries = claim and unpacked(claim).d or {}
    for i, held in ipairs(got(RUN, deliveries)) do
      if held then open[#open + 1] = deliveries[i] end
    end
  end
end
return open
