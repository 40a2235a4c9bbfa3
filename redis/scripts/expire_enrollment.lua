#!lua flags=allow-oom
-- Makes sure that a subscription which is in the registry but was never made cannot be made
-- any more under its number, so that remove_enrollment.lua can remove it. A slow client that was making
-- it enrolls it again.
-- keys: of the queue
-- args: queue, its number; number and time of enrollment of the subscription; age in µs up to
--       which a client may still be making it
-- returns: "gone", "there", "young" (a client may be making it) or "ok"
-- cost: three commands
local queue, number, enrolled, age = unpack(ARGV)
-- includes: keys
local meta = call('HMGET', META, 'no', 'subs', 'ended')
if meta[1] ~= queue then return 'gone' end
for _, s in ipairs(meta[2] and unpacked(meta[2]) or {}) do
  if s.i == number then return 'there' end
end
if now - enrolled < tonumber(age) then return 'young' end
call('HSET', META, 'ended', text(math.max(tonumber(enrolled), tonumber(meta[3] or -1))))
return 'ok'
