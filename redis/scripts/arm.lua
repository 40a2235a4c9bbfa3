#!lua flags=allow-oom
-- Writes down that somebody falls asleep at a queue, also where memory is full: what is
-- settled or falls due still wakes him.
-- keys: 1 the queue's "asleep"
-- args: 1 for how many ms
-- returns: OK
-- cost: one command
return redis.call('SET', KEYS[1], '1', 'PX', ARGV[1])
