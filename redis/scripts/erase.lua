#!lua flags=allow-oom
-- Erases what is kept of messages that are settled: kind, states and times stay.
-- keys: of the queue; then, of each further subscription, what it has of states and words
-- args: 1 the queue's number; 2 its rules (rules.lua); 3 the letters of the further
--       subscriptions (holders.lua); then the messages
-- returns: "gone", or per message "erased", "pending" (it is still to be delivered and
--       was left as it is) or "" (it is not there, or was erased before)
-- cost: some nine commands per message, and some six per further subscription
-- includes: keys, rules, current, words, holders
local base = #KEYS - 2 * #ARGV[3]
local all = {{'@', ST, WORDS}} -- the subscriptions
for i = 1, #ARGV[3] do all[i + 1] = {string.sub(ARGV[3], i, i), KEYS[base + 2 * i - 1], KEYS[base + 2 * i]} end
local became = {}
for i = 4, #ARGV do
  local id = ARGV[i]
  local content, held = call('HGET', MSG, id), call('HGET', HOLDERS, id)
  local pending, kept = false, {}
  for _, s in ipairs(all) do
    local before = call('HGET', s[2], id)
    local st = before and unpacked(before)
    if content and markOf(held, s[1]) and (not st or st.d or not st.z or st.z == 'waits') then pending = true end
    if st and not st.e then kept[#kept + 1] = {st, s[2], s[3]} end
  end
  if pending then
    became[#became + 1] = 'pending'
  elseif #kept == 0 then
    became[#became + 1] = ''
  else
    for _, k in ipairs(kept) do
      ST, WORDS = k[2], k[3]
      unword({id})
    end
    if content then
      local _, raw = reader(content)
      raw()
      local kind = raw()
      raw()
      local bare = '\0' .. kind .. '\0' .. raw() .. '\0\0'
      call('HSET', MSG, id, string.sub(content, 1, 1) .. struct.pack('>I4', #bare) .. bare)
    end
    for _, k in ipairs(kept) do
      local st = k[1]
      for _, attempt in ipairs(st.s or {}) do
        if attempt.m and attempt.m ~= '' then attempt.m = 'erased' end
        attempt.r = nil
      end
      st.t, st.e = nil, now
      call('HSET', k[2], id, pack(st))
    end
    became[#became + 1] = 'erased'
  end
end
return became
