-- What every script that writes begins with, once for each of its commands (script.go).
-- may ends the script, before it has written anything, if the user may not give a command.
local function may(name, ...)
  if not redis.acl_check_cmd(name, ...) then
    error({err = "NOPERM this user may not call '" .. string.lower(name) .. "', so nothing was done"})
  end
end
