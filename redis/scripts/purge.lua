#!lua flags=allow-oom
-- Cancels a part of the messages that aside.lua moved aside.
-- keys: of the subscription
-- args: number of the subscription; rules; most, the maximum to cancel
-- returns: "gone", or a list: how many it cancelled; 1 if more are aside, else 0
-- cost: some ten commands a call, two per message
local number, rules, most = unpack(ARGV)
-- includes: keys, rules, current, keyed, words, holders, apart, notes, ended
local function some() return call('EXISTS', ASIDE_DUE, ASIDE_ALONE, ASIDE0, ASIDE1, ASIDE2, ASIDE3, ASIDE_APART) > 0 or rules.y and call('EXISTS', ASIDE_WAIT) == 1 end
local most, n = tonumber(most), 0
local function cancel(id)
  if call('SREM', STALE, id) == 1 then return end -- was withdrawn already
  local before = call('HGET', ST, id)
  local st = before and unpacked(before) or {a = 1, f = 0, l = 0, x = 0}
  st.z, st.q, st.w = 'cancelled', now, nil
  call('HSET', ST, id, pack(st))
  if not before then call('ZADD', KNOWN, id, id) end
  kept[#kept + 1] = id
end
for _, key in ipairs({ASIDE_DUE, ASIDE_ALONE}) do
  if n == most then break end
  local popped = call('ZPOPMIN', key, most - n)
  for j = 1, #popped, 2 do cancel(string.sub(popped[j], 3)) end
  n = n + #popped / 2
end
for _, key in ipairs({ASIDE0, ASIDE1, ASIDE2, ASIDE3}) do
  if n == most then break end
  local popped = call('LPOP', key, most - n) or {}
  for _, id in ipairs(popped) do cancel(id) end
  n = n + #popped
end
if n < most then
  local popped = call('ZPOPMIN', ASIDE_APART, most - n)
  for j = 1, #popped, 2 do cancel(idApart(popped[j])) end
  n = n + #popped / 2
end
if rules.y and n < most then
  local popped = call('ZPOPMIN', ASIDE_WAIT, most - n)
  for j = 1, #popped, 2 do cancel(idOf(popped[j])) end
end
counts.withdrawn = #kept
finish()
return {#kept, some() and 1 or 0}
