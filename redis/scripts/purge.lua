#!lua flags=allow-oom
-- Cancels a part of what was put aside (aside.lua).
-- keys: of the queue
-- args: 1 the queue's number; 2 its rules (rules.lua); 3 the most to cancel
-- returns: "gone", or a list: how many it cancelled, 1 if more are aside
-- cost: some ten commands a call, two per message
-- includes: keys, rules, current, keyed, words, holders, ended
local function some() return call('EXISTS', unpack(KEYS, 21, 26)) > 0 or rules.y and call('EXISTS', ASIDE) == 1 end
local most, n = tonumber(ARGV[3]), 0
local function cancel(id)
  if call('SREM', STALE, id) == 1 then return end -- is something else already
  local before = call('HGET', ST, id)
  local st = before and unpacked(before) or {a = 1, f = 0, l = 0, x = 0}
  st.z, st.q = 'cancelled', now
  call('HSET', ST, id, pack(st))
  if not before then call('ZADD', KNOWN, id, id) end
  kept[#kept + 1] = id
end
for i = 21, 26 do
  local looked = most - n
  if looked <= 0 then break end
  if i <= 22 then
    local popped = call('ZPOPMIN', KEYS[i], looked)
    for j = 1, #popped, 2 do cancel(string.sub(popped[j], 3)) end
    n = n + #popped / 2
  else
    local popped = call('LPOP', KEYS[i], looked) or {}
    for _, id in ipairs(popped) do cancel(id) end
    n = n + #popped
  end
end
if rules.y and n < most then
  local popped = call('ZPOPMIN', ASIDE, most - n)
  for j = 1, #popped, 2 do cancel(idOf(popped[j])) end
end
counts.withdrawn = #kept
finish()
return {#kept, some() and 1 or 0}
