#!lua flags=allow-oom
-- Moves all waiting messages of a queue aside for a purge, for every subscription in one
-- step, unless a purge has messages aside already. purge.lua cancels them. It does nothing
-- while fill.lua still gives a subscription older messages: the subscription would also get
-- those that are aside.
-- keys: those of each subscription of the queue in turn
-- args: number of the queue; rules
-- returns: "gone", "fill" (fill.lua has not finished), 1 if it moved them, else 0
-- cost: some twenty commands per subscription
local number, rules = unpack(ARGV)
-- The places of keys among those of one subscription (keys.lua, keyed.lua).
local AT_DUE, AT_ALONE, AT_ASIDE_DUE, AT_ASIDE_ALONE, AT_ASIDE3, AT_READY3, AT_TALLY = 5, 6, 21, 22, 26, 10, 29
local AT_APART, AT_ASIDE_APART, AT_BELL, AT_WAIT, AT_ASIDE_WAIT = 31, 32, 33, 34, 43
-- includes: keys, rules, current
local size = rules.y and AT_ASIDE_WAIT or AT_BELL
for at = 0, #KEYS - 1, size do
  if call('HEXISTS', KEYS[at + AT_TALLY], 'fill') == 1 then return 'fill' end
  if call('EXISTS', KEYS[at + AT_ASIDE_APART], unpack(KEYS, at + AT_ASIDE_DUE, at + AT_ASIDE3)) > 0 or rules.y and call('EXISTS', KEYS[at + AT_ASIDE_WAIT]) == 1 then return 0 end
end
for at = 0, #KEYS - 1, size do
  if rules.o then call('UNLINK', KEYS[at + AT_DUE], KEYS[at + AT_ALONE]) end -- all of them are in WAIT, too
  if rules.y and call('EXISTS', KEYS[at + AT_WAIT]) == 1 then call('RENAME', KEYS[at + AT_WAIT], KEYS[at + AT_ASIDE_WAIT]) end
  if call('EXISTS', KEYS[at + AT_APART]) == 1 then
    call('RENAME', KEYS[at + AT_APART], KEYS[at + AT_ASIDE_APART])
    call('HDEL', KEYS[at + AT_TALLY], 'apart')
  end
  for i = 0, AT_READY3 - AT_DUE do
    local from, to = KEYS[at + AT_DUE + i], KEYS[at + AT_ASIDE_DUE + i]
    if call('EXISTS', from) == 1 then call('RENAME', from, to) end
  end
end
return 1
