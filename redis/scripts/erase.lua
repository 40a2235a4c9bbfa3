#!lua flags=allow-oom
-- Erases the contents of settled messages. Kinds, states and times stay.
-- keys: of the queue; then, of each further subscription, ST and WORDS; UNIQUE (unique.lua)
-- args: number of the queue; rules; letters of the further subscriptions (holders.lua); then
--       the messages
-- returns: "gone", or for each message "erased", "pending" (it must still be delivered and
--       was left unchanged) or "" (it is not there, or is erased already)
-- cost: some ten commands per message, and some six per further subscription
local number, rules, letters = unpack(ARGV, 1, 3)
-- includes: keys, rules, current, words, holders
local base, UNIQUE = #KEYS - 1 - 2 * #letters, KEYS[#KEYS]
local all = {{'@', ST, WORDS}} -- the subscriptions
for i = 1, #letters do all[i + 1] = {string.sub(letters, i, i), KEYS[base + 2 * i - 1], KEYS[base + 2 * i]} end
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
        attempt.r, attempt.k, attempt.x, attempt.g = nil, nil, nil, nil
      end
      st.t, st.e = nil, now
      call('HSET', k[2], id, pack(st))
    end
    local its = call('HGET', UNIQUE, '@' .. id) -- it cannot be replayed, and so needs no key
    if its then
      local key = unpacked(its).k
      local row = call('HGET', UNIQUE, key)
      call('HDEL', UNIQUE, '@' .. id)
      if row and unpacked(row).i == id then call('HDEL', UNIQUE, key) end
    end
    became[#became + 1] = 'erased'
  end
end
return became
