#!lua flags=allow-oom
-- Puts aside all that waits in a queue, for every subscription at one moment, unless
-- something is aside still. purge.lua cancels it. A subscription that is being given what
-- is older (fill.lua) is waited for: else it would get what is aside, too.
-- keys: of each subscription of the queue in turn
-- args: 1 the queue's number; 2 its rules (rules.lua)
-- returns: "gone", "fill" (fill.lua has not come to its end), or 1 if it did, else 0
-- cost: some twenty commands per subscription
-- includes: keys, rules, current
local size = rules.y and 41 or 31
for at = 0, #KEYS - 1, size do
  if call('HEXISTS', KEYS[at + 29], 'fill') == 1 then return 'fill' end
  if call('EXISTS', unpack(KEYS, at + 21, at + 26)) > 0 or rules.y and call('EXISTS', KEYS[at + 41]) == 1 then return 0 end
end
for at = 0, #KEYS - 1, size do
  if rules.o then call('UNLINK', KEYS[at + 5], KEYS[at + 6]) end -- all of it waits by its key, too
  if rules.y and call('EXISTS', KEYS[at + 32]) == 1 then call('RENAME', KEYS[at + 32], KEYS[at + 41]) end
  for i = 5, 10 do
    if call('EXISTS', KEYS[at + i]) == 1 then call('RENAME', KEYS[at + i], KEYS[at + i + 16]) end
  end
end
return 1
