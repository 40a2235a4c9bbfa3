#!lua flags=allow-oom
-- Creates the keys of a queue in its own slot, once. The registry (enroll.lua) decides
-- whether the queue exists. A late caller does not touch a later queue of the same name.
-- keys: of the queue
-- args: number of the queue; limits (limits.lua), or ""; created, its time of creation;
--       revision of its options, or ""
-- returns: "ok"
-- cost: three commands
local number, limits, created, revision = unpack(ARGV)
-- includes: keys
local meta = call('HMGET', META, 'no', 'made')
if meta[1] ~= number and tonumber(meta[2] or 0) <= tonumber(created) then
  call('UNLINK', unpack(KEYS)) -- of a queue whose drop did not end
  call('HSET', META, 'no', number, 'made', created, 'last', text(now))
  if limits ~= '' then call('HSET', META, 'limits', limits) end
  if revision ~= '' then call('HSET', META, 'rev', revision) end
end
return 'ok'
