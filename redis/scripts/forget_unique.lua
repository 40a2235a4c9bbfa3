#!lua flags=allow-oom
-- Forgets unique keys whose messages are finished and will not be replayed: sending does so only
-- while messages with unique keys are sent to the queue.
-- keys: of all subscriptions of the queue; UNIQUE (unique.lua), and the line of its messages
-- args: number of the first subscription; rules; letters of the subscriptions; most, the maximum
--       of messages to look at
-- returns: "gone", or 1
-- cost: two commands, and per message three and some six per subscription
local number, rules, letters, most = unpack(ARGV)
-- The places of keys among those of one subscription (keys.lua, keyed.lua).
local AT_META, AT_MSG, AT_ST, AT_DUE = 1, 2, 3, 5
local AT_KNOWN, AT_WORDS, AT_TALLY, AT_HOLDERS, AT_BELL, AT_WAIT, AT_ASIDE_WAIT = 27, 28, 29, 30, 33, 34, 43
-- includes: keys, rules, current, words, unique
local subs = {}
for i = 1, #letters do
  subs[i] = {at = (i - 1) * (rules.y and AT_ASIDE_WAIT or AT_BELL), letter = string.sub(letters, i, i), age = rules.a}
end
forgetKeys(KEYS[#KEYS - 1], KEYS[#KEYS], math.min(tonumber(most), call('LLEN', KEYS[#KEYS])), subs, madeOf(0), {})
return 1
