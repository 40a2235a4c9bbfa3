#!lua flags=allow-oom
-- Stores the tokens of the HTTP API.
-- keys: TOKENS
-- args: what to do, and what it needs ("" otherwise):
--       "add": adds the token name, packed (token.go), which expires at the time expires in µs
--       or lasts for so many µs; c, its time of creation, and x, its end, are added to it
--       "drop": removes the token name
--       "list": returns all tokens, and records the use of those whose names follow
-- returns: add: "exists", "full", "past" (it would have expired) or "ok"; drop: 1 or 0;
--       list: the time in µs, "1" if a token was ever added, and each token's name and the
--       token, packed, with u if it was used, the time of its last use
-- cost: at most four commands; to list one, two per used name, and the bytes of all tokens,
--       of which there are at most 1,000
local TOKENS = unpack(KEYS)
local what, name, expires, lasts, token = unpack(ARGV, 1, 5)
local call, pack, unpacked = redis.call, cmsgpack.pack, cmsgpack.unpack
local clock = call('TIME')
local now = (clock[1] - 1735689600) * 1000000 + clock[2]
if what == 'add' then
  local t = unpacked(token)
  t.c, t.x = now, tonumber(expires) or tonumber(lasts) and now + lasts
  if t.x and t.x <= now then return 'past' end
  if call('HEXISTS', TOKENS, name) == 1 then return 'exists' end
  if call('HLEN', TOKENS) > 1000 then return 'full' end -- one field, "#ever", is not a token
  call('HSET', TOKENS, '#ever', '1', name, pack(t))
  return 'ok'
elseif what == 'drop' then
  return call('HDEL', TOKENS, name)
end
for i = 6, #ARGV do
  local is = call('HGET', TOKENS, ARGV[i])
  local t = is and unpacked(is)
  if t and (t.u or 0) < now - 300000000 then
    t.u = now
    call('HSET', TOKENS, ARGV[i], pack(t))
  end
end
local all = {string.format('%.0f', now), ''}
local rows = call('HGETALL', TOKENS)
for i = 1, #rows, 2 do
  if rows[i] == '#ever' then
    all[2] = '1'
  else
    all[#all + 1] = rows[i]
    all[#all + 1] = rows[i + 1]
  end
end
return all
