#!lua flags=allow-oom
-- Takes a sample of a subscription for charts, unless another process took the one of this minute.
-- keys: of the subscription; then SAMPLED, SAMPLES_MINUTE, SAMPLES_HOUR (keys.go)
-- args: number of the subscription; rules; minute, the number of which the keys are; detail and
--       hours, the seconds after which those of a minute and of an hour end; subscription, its
--       name; made, when it was
-- returns: "gone"; the time, if the minute has ended or not begun; or ""
-- cost: three commands if the sample was taken; otherwise those of count.lua and nine
local number, rules, minute, detail, hours, subscription, made = unpack(ARGV)
local SAMPLED, SAMPLES_MINUTE, SAMPLES_HOUR = unpack(KEYS, #KEYS - 2)
-- includes: keys, rules, current, keyed, handled, counted
if math.floor(clock[1] / 60) ~= tonumber(minute) then return text(now) end
local was = call('HGET', SAMPLED, subscription)
was = was and unpacked(was)
if was and was.n ~= number then was = nil end -- of one of that name that has ended
if was and was.m == minute then return '' end
local all = counted()
-- A sample: sent, done, retried, lost, expired; depth, in flight, dead; age of the oldest message
-- in µs. The last one has the totals of the first five.
local COUNTS, sample, changed = 5, {}, false
for i, at in ipairs({5, 6, 7, 8, 13, 1, 2, 3}) do sample[i] = tonumber(all[at]) end
-- Earlier counts of a subscription without a last sample are of unknown times, unless it is new.
local before = was and was.c or (now - made < 3600000000 and {0, 0, 0, 0, 0, 0, 0, 0}) or {unpack(sample, 1, COUNTS)}
local totals = {}
for i, n in ipairs(sample) do
  if n ~= (before[i] or 0) then changed = true end
  totals[i] = n
  if i <= COUNTS then sample[i] = math.max(0, n - before[i]) end
end
call('HSET', SAMPLED, subscription, pack({n = number, m = minute, c = totals}))
call('EXPIRE', SAMPLED, hours)
if not changed then return '' end
sample[9] = math.max(0, tonumber(all[10]))
call('HSET', SAMPLES_MINUTE, subscription, pack(sample))
call('EXPIRE', SAMPLES_MINUTE, detail)
local sum = call('HGET', SAMPLES_HOUR, subscription)
sum = sum and unpacked(sum)
for i = 1, sum and COUNTS or 0 do sample[i] = sample[i] + sum[i] end
call('HSET', SAMPLES_HOUR, subscription, pack(sample))
call('EXPIRE', SAMPLES_HOUR, hours)
return ''
