#!lua
-- Gives a queue a further subscription, which gets what is sent from now on.
-- keys: of the subscription
-- args: 1 the queue's number; 2 the subscription's name; 3 its number and 4 when it was
--       enrolled; 5 its options, as JSON; 6 "1" if it gets something that was sent before
--       (fill.lua); 7 how many further ones a queue may have
-- returns: "gone"; "late": it was enrolled before another one ended, and may be that;
--       "leaving": one of its name has not quite ended; "full"; or "made" or "exists", and
--       the options of the one that is there
-- cost: five commands
-- includes: keys
local meta = call('HMGET', META, 'no', 'last', 'readers', 'subs', 'ended')
if meta[1] ~= ARGV[1] then return 'gone' end
local all, used = meta[4] and unpacked(meta[4]) or {}, {}
for _, s in ipairs(all) do
  used[s.h] = true
  if s.n == ARGV[2] then return s.g and 'leaving' or {'exists', s.o} end
end
if tonumber(ARGV[4]) <= tonumber(meta[5] or -1) then return 'late' end
if #all >= tonumber(ARGV[7]) then return 'full' end
local letter = 65
while used[string.char(letter)] do letter = letter + 1 end
all[#all + 1] = {n = ARGV[2], i = ARGV[3], c = tonumber(ARGV[4]), o = ARGV[5], h = string.char(letter)}
call('HSET', META, 'subs', pack(all), 'readers', text(math.max(now, tonumber(meta[3] or 0) + 1)))
call('HSET', TALLY, 'no', ARGV[3])
if ARGV[6] == '1' then call('HSET', TALLY, 'fill', meta[2]) end
return {'made', ARGV[5]}
