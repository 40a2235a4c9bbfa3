#!lua
-- Replaces the content of a waiting message that no subscription was handed.
-- keys: of all subscriptions of the queue
-- args: number of the first subscription; rules; letters of the subscriptions; rejects, letters of
--       those whose filters reject the message; id of the message; was, the content that it must
--       have; content, the new one; found, packed, the words by which it is found (words.lua)
-- returns: "gone"; "ok"; "stale" if it has another content; or the place of the subscription that
--       prevents it, and the message's state there
-- cost: some ten commands per subscription, and one member per word
local number, rules, letters, rejects, id, was, content, found = unpack(ARGV)
-- The places of keys among those of one subscription (keys.lua, keyed.lua).
local AT_META, AT_MSG, AT_ST, AT_DUE = 1, 2, 3, 5
local AT_KNOWN, AT_WORDS, AT_TALLY, AT_HOLDERS, AT_BELL, AT_WAIT, AT_ASIDE_WAIT = 27, 28, 29, 30, 33, 34, 43
-- includes: keys, rules, current, words, unique
local subs, made = {}, madeOf(0)
for i = 1, #letters do
  subs[i] = {at = (i - 1) * (rules.y and AT_ASIDE_WAIT or AT_BELL), letter = string.sub(letters, i, i)}
end
local waits, at, z = untouched(subs, made, id, rejects)
if not waits then return {at, z} end
if call('HGET', MSG, id) ~= was then return 'stale' end
rewrite(subs, id, content, unpacked(found) or {}, nil, rules.a, false)
ring(ASLEEP, BELL)
return 'ok'
