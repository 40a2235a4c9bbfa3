#!lua flags=allow-oom
-- Removes the keys of a queue that is being dropped, unless a later queue of that name has
-- them: another call may have dropped the queue, and a client created it again.
-- keys: of the queue and of each of its further subscriptions, and those of its charts
-- args: created, the queue's time of creation; readers, the version of its subscriptions or ""
-- returns: "ok", or "changed" if the subscriptions have another version
-- cost: four commands, most of them for names of keys that do not exist
local created, readers = unpack(ARGV)
-- includes: keys
local made, version = unpack(call('HMGET', META, 'made', 'readers'))
if not made or tonumber(made) <= tonumber(created) then
  if made and (version or '') ~= readers then return 'changed' end
  for i = 1, #KEYS, 2000 do call('UNLINK', unpack(KEYS, i, math.min(i + 1999, #KEYS))) end
end
return 'ok'
