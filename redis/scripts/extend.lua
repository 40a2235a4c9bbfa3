#!lua flags=allow-oom
-- Moves the lease ends of received deliveries to lease from now.
-- keys: of the queue
-- args: 1 the lease in µs; then the deliveries
-- returns: for each 1 if it is still held, 0 if not
-- cost: one command, and one or two per delivery
-- includes: keys
local own, was = call('HMGET', TALLY, 'no', 'first'), {}
local open = own[1] and not own[2] -- what has ended holds nothing
local ends = text(now + ARGV[1])
for i = 2, #ARGV do
  was[i - 1] = 0
  if open and call('ZSCORE', TIMED, ARGV[i]) then
    call('ZADD', TIMED, 'XX', ends, ARGV[i])
    was[i - 1] = 1
  end
end
return was
