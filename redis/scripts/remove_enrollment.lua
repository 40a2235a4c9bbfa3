#!lua flags=allow-oom
-- Removes a subscription that has ended from the registry, unless one of that name was
-- enrolled meanwhile.
-- keys: QUEUES, the registry
-- args: field of the subscription; value that it must still have
-- returns: "ok"
-- cost: two commands
local QUEUES = unpack(KEYS)
local field, value = unpack(ARGV)
if redis.call('HGET', QUEUES, field) == value then redis.call('HDEL', QUEUES, field) end
return 'ok'
