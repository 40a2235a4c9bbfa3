#!lua flags=allow-oom
-- Erases the errors of messages from the charts of a queue: their texts, and their fingerprints if
-- no other message had the error.
-- keys: the hashes of errors of minutes and hours (report.lua)
-- args: messages
-- returns: the number of errors
-- cost: one command per key, most of which do not exist, and one per group of errors that changes
local call, pack, unpacked = redis.call, cmsgpack.pack, cmsgpack.unpack
local erased, n = {}, 0
for i = 1, #ARGV do erased[ARGV[i]] = true end
for _, key in ipairs(KEYS) do
  local groups = call('HGETALL', key)
  for i = 1, #groups, 2 do
    local before, errors = n, unpacked(groups[i + 1])
    for _, e in ipairs(errors) do
      if erased[e.m] then
        n, e.t = n + 1, 'erased'
        if e.n == 1 then e.f = 'erased' end
      end
    end
    if n > before then call('HSET', key, groups[i], pack(errors)) end
  end
end
return n
