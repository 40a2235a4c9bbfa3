#!lua flags=allow-oom
-- Extends the leases of received deliveries.
-- keys: of the subscription
-- args: lease in µs from now; then the deliveries
-- returns: for each delivery 1 if it is still held, 2 if its message was also cancelled, else 0
-- cost: one command, and one or two per delivery
local lease = unpack(ARGV, 1, 1)
-- includes: keys
local own, was = call('HMGET', TALLY, 'no', 'first', 'cancels'), {}
local open = own[1] and not own[2] -- a subscription that has ended holds nothing
local cancelled = {}
for _, d in ipairs(own[3] and unpacked(own[3]) or {}) do cancelled[d] = true end
local ends = text(now + lease)
for i = 2, #ARGV do
  was[i - 1] = 0
  if open and call('ZSCORE', TIMED, ARGV[i]) then
    call('ZADD', TIMED, 'XX', ends, ARGV[i])
    was[i - 1] = cancelled[ARGV[i]] and 2 or 1
  end
end
return was
