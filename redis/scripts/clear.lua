#!lua flags=allow-oom
-- Removes the keys of a queue that is being dropped, unless a later queue of its name
-- has them: another call may have dropped it, and somebody made it anew.
-- keys: of the queue
-- args: 1 when it was created
-- cost: two commands
-- includes: keys
local made = call('HGET', META, 'made')
if not made or tonumber(made) <= tonumber(ARGV[1]) then call('UNLINK', unpack(KEYS)) end
return 'ok'
