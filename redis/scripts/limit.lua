#!lua
-- Gives a queue these limits.
-- keys: of the queue
-- args: 1 the queue's number; 2 its limits (limits.lua), or ""
-- returns: "gone" or "ok"
-- cost: four commands
-- includes: keys
if call('HGET', META, 'no') ~= ARGV[1] then return 'gone' end
if ARGV[2] == '' then
  call('HDEL', META, 'limits', 'full', 'mute')
else
  call('HSET', META, 'limits', ARGV[2])
  call('HDEL', META, 'mute')
end
ring()
return 'ok'
