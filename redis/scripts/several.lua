-- Runs another script, here called one, for each of several queues (script.go). The queues
-- are in one slot or on one server.
-- keys: those of each queue in turn
-- args: per queue the number of its keys, the number of its arguments, and the arguments
-- returns: the reply of the script for each queue
-- cost: that of the script for each queue
local replies, key, arg = {}, 0, 0
while arg < #ARGV do
  local keys, args = tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
  replies[#replies + 1] = one({unpack(KEYS, key + 1, key + keys)}, {unpack(ARGV, arg + 3, arg + 2 + args)})
  key, arg = key + keys, arg + 2 + args
end
return replies
