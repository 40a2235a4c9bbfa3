-- Does what a script does for one queue for each of several (script.go), which lie in one
-- slot or on one server: one is that script.
-- keys: of each queue in turn
-- args: per queue, how many keys it has and how many args, and these
-- returns: per queue, what the script returns
-- cost: as often as the script's
local replies, key, arg = {}, 0, 0
while arg < #ARGV do
  local keys, args = tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
  replies[#replies + 1] = one({unpack(KEYS, key + 1, key + keys)}, {unpack(ARGV, arg + 3, arg + 2 + args)})
  key, arg = key + keys, arg + 2 + args
end
return replies
