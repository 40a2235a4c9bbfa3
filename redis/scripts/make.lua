#!lua
-- Makes what a queue needs in its own slot, once: the registry (register.lua) is
-- what says that there is such a queue.
-- keys: of the queue
-- args: 1 the queue's number; 2 its limits (limits.lua), or ""
-- cost: three commands
-- includes: keys
if call('HGET', META, 'no') ~= ARGV[1] then
  call('UNLINK', unpack(KEYS)) -- of a queue that was dropped half
  call('HSET', META, 'no', ARGV[1], 'last', text(now))
  if ARGV[2] ~= '' then call('HSET', META, 'limits', ARGV[2]) end
end
return 'ok'
