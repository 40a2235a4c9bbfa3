#!lua flags=allow-oom
-- Removes the keys of a queue that is being dropped, unless a later queue of its name
-- has them: another call may have dropped it, and somebody made it anew.
-- keys: of the queue, and of each further subscription
-- args: 1 when it was created; 2 the version of its subscriptions, or ""
-- returns: "ok", or "changed": it has got other subscriptions
-- cost: two commands
-- includes: keys
local made, version = unpack(call('HMGET', META, 'made', 'readers'))
if not made or tonumber(made) <= tonumber(ARGV[1]) then
  if made and (version or '') ~= ARGV[2] then return 'changed' end
  call('UNLINK', unpack(KEYS))
end
return 'ok'
