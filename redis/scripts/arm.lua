#!lua flags=allow-oom
-- Records that a process sleeps at a queue and waits for its bell. It also runs when
-- memory is full, because messages that are settled or fall due must still wake the process.
-- keys: ASLEEP of the queue
-- args: ms, after which the record expires
-- returns: OK
-- cost: one command
local ASLEEP = unpack(KEYS)
local ms = unpack(ARGV)
return redis.call('SET', ASLEEP, '1', 'PX', ms)
