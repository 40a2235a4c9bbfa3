-- The beginning of each script that writes, followed by a call of may for each of its
-- commands (script.go). may ends the script before it writes anything if a command is denied.
local function may(name, ...)
  if not redis.acl_check_cmd(name, ...) then
    error({err = "NOPERM this user may not call '" .. string.lower(name) .. "', so nothing was done"})
  end
end
