#!lua
-- Gives a queue a further subscription, which gets the messages that are sent from now on.
-- keys: of the subscription
-- args: queue, its number; name, number and time of enrollment of the subscription; options,
--       as JSON; older: "1" if it also gets messages that were sent before (fill.lua); most,
--       the maximum of further subscriptions of a queue
-- returns: "gone"; "late" (it was enrolled before another one ended, and may be that one);
--       "leaving" (one of that name has not quite ended); "full"; or "made" or "exists", and
--       the options of the subscription
-- cost: five commands
local queue, name, number, enrolled, options, older, most = unpack(ARGV)
-- includes: keys
local meta = call('HMGET', META, 'no', 'last', 'readers', 'subs', 'ended')
if meta[1] ~= queue then return 'gone' end
local all, used = meta[4] and unpacked(meta[4]) or {}, {}
for _, s in ipairs(all) do
  used[s.h] = true
  if s.n == name then return s.g and 'leaving' or {'exists', s.o} end
end
if tonumber(enrolled) <= tonumber(meta[5] or -1) then return 'late' end
if #all >= tonumber(most) then return 'full' end
local letter = 65
while used[string.char(letter)] do letter = letter + 1 end
all[#all + 1] = {n = name, i = number, c = tonumber(enrolled), o = options, h = string.char(letter)}
call('HSET', META, 'subs', pack(all), 'readers', text(math.max(now, tonumber(meta[3] or 0) + 1)))
call('HSET', TALLY, 'no', number)
if older == '1' then call('HSET', TALLY, 'fill', meta[2]) end
return {'made', options}
