#!lua flags=allow-oom
-- Strikes a subscription that has ended off the registry, unless one of its name was
-- enrolled meanwhile.
-- keys: 1 the registry of queues
-- args: 1 its field; 2 what is there
-- returns: "ok"
-- cost: two commands
if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then redis.call('HDEL', KEYS[1], ARGV[1]) end
return 'ok'
