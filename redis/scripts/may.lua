#!lua flags=no-writes
-- Tells which commands the user may not run, before any is run: a script whose command is
-- denied midway has already written a part.
-- keys: none
-- args: commands with arguments, packed
-- returns: the places of the commands that are denied or that Redis does not know
-- cost: one check per command
local commands = unpack(ARGV)
local denied = {}
for i, command in ipairs(cmsgpack.unpack(commands)) do
  local known, may = pcall(redis.acl_check_cmd, unpack(command))
  if not (known and may) then denied[#denied + 1] = i end
end
return denied
