#!lua flags=no-writes
-- Tells what the user may not do of what is needed, before any of it is done: what a script
-- is denied in its middle leaves what it has done.
-- keys: none
-- args: 1 commands with arguments, packed
-- returns: the places of those that are denied, or that Redis does not know
-- cost: one look per command
local denied = {}
for i, command in ipairs(cmsgpack.unpack(ARGV[1])) do
  local known, may = pcall(redis.acl_check_cmd, unpack(command))
  if not (known and may) then denied[#denied + 1] = i end
end
return denied
