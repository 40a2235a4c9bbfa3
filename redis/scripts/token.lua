#!lua flags=allow-oom
-- Keeps the tokens of the HTTP API.
-- keys: 1 the tokens
-- args: 1 what to do: "add", 2 the name, 3 when it expires in µs or "", 4 in how many
--       µs or "", 5 the token, packed (token.go), to which c when it was made and x when
--       it expires are added; "drop", 2 the name; "list", then names that were used
-- returns: add: "exists", "full", "past" (it would have expired) or "ok"; drop: 0 or 1;
--       list: the time in µs, "1" if a token was ever made, and per token its name and
--       the token, packed, with u when it was last used
-- cost: at most four commands; list one, and two per name that was used, and as much
--       as there are tokens, of which there are 1,000 at most
local call, pack, unpacked = redis.call, cmsgpack.pack, cmsgpack.unpack
local clock = call('TIME')
local now = (clock[1] - 1735689600) * 1000000 + clock[2]
local what, name = ARGV[1], ARGV[2]
if what == 'add' then
  local t = unpacked(ARGV[5])
  t.c, t.x = now, tonumber(ARGV[3]) or tonumber(ARGV[4]) and now + ARGV[4]
  if t.x and t.x <= now then return 'past' end
  if call('HEXISTS', KEYS[1], name) == 1 then return 'exists' end
  if call('HLEN', KEYS[1]) > 1000 then return 'full' end -- one field is not a token
  call('HSET', KEYS[1], '#ever', '1', name, pack(t))
  return 'ok'
elseif what == 'drop' then
  return call('HDEL', KEYS[1], name)
end
for i = 2, #ARGV do
  local is = call('HGET', KEYS[1], ARGV[i])
  local t = is and unpacked(is)
  if t and (t.u or 0) < now - 300000000 then
    t.u = now
    call('HSET', KEYS[1], ARGV[i], pack(t))
  end
end
local all = {string.format('%.0f', now), ''}
local rows = call('HGETALL', KEYS[1])
for i = 1, #rows, 2 do
  if rows[i] == '#ever' then
    all[2] = '1'
  else
    all[#all + 1] = rows[i]
    all[#all + 1] = rows[i + 1]
  end
end
return all
