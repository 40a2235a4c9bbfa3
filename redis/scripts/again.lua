#!lua flags=allow-oom
-- Gives unique keys back to dead letters that are about to be replayed. bury.lua checks that they
-- still have them.
-- keys: of all subscriptions of the queue; UNIQUE (unique.lua)
-- args: number of the first subscription; rules; letters of the subscriptions; then the messages
-- returns: "gone", or the messages whose keys others hold
-- cost: per message two commands, and for a unique key some six per subscription
local number, rules, letters = unpack(ARGV, 1, 3)
-- The places of keys among those of one subscription (keys.lua, keyed.lua).
local AT_META, AT_MSG, AT_ST, AT_DUE = 1, 2, 3, 5
local AT_KNOWN, AT_WORDS, AT_TALLY, AT_HOLDERS, AT_BELL, AT_WAIT, AT_ASIDE_WAIT = 27, 28, 29, 30, 33, 34, 43
-- includes: keys, rules, current, words, unique
local UNIQUE = KEYS[#KEYS]
local subs, made, held = {}, madeOf(0), {}
for i = 1, #letters do
  subs[i] = {at = (i - 1) * (rules.y and AT_ASIDE_WAIT or AT_BELL), letter = string.sub(letters, i, i), age = rules.a}
end
for i = 4, #ARGV do
  local id = ARGV[i]
  local its = call('HGET', UNIQUE, '@' .. id)
  its = its and unpacked(its)
  local row = its and call('HGET', UNIQUE, its.k)
  row = row and unpacked(row)
  if its and row and row.i ~= id and holds(subs, made, row) then
    held[#held + 1] = id
  elseif its then
    local attempt = 1
    for _, sub in ipairs(subs) do
      local st = call('HGET', KEYS[sub.at + AT_ST], id)
      if st and unpacked(st).z == 'dead' then attempt = math.max(attempt, unpacked(st).a + 1) end
    end
    call('HSET', UNIQUE, its.k, pack({i = id, u = its.u, a = attempt, x = its.x}))
  end
end
return held
