#!lua flags=allow-oom
-- Replays or discards dead letters.
-- keys: of the subscription; UNIQUE (unique.lua)
-- args: number of the subscription; rules; action: "replay" or "discard"; then the messages
-- returns: "gone", or the messages that were dead letters; after "!" those that stay, because
--       another message has taken their unique key since again.lua gave it back
-- cost: some six commands per message
local number, rules, action = unpack(ARGV, 1, 3)
-- includes: keys, rules, current, keyed, words, holders, apart, notes, ended
local UNIQUE = KEYS[#KEYS]
local were = {}
if call('HGET', TALLY, 'first') then return were end -- the subscription has ended
for i = 4, #ARGV do
  local id = ARGV[i]
  local st = call('ZSCORE', DEAD, id) and unpacked(call('HGET', ST, id))
  local its = st and action == 'replay' and call('HGET', UNIQUE, '@' .. id)
  local row = its and call('HGET', UNIQUE, unpacked(its).k)
  if row and unpacked(row).i ~= id then
    were[#were + 1] = '!' .. id
  -- An erased message cannot be tried again, nor one of which an edited copy was sent.
  elseif st and not (action == 'replay' and (st.e or st.c)) then
    call('ZREM', DEAD, id)
    were[#were + 1] = id
    if action == 'replay' then
      st.z, st.a, st.f, st.l, st.x = 'waits', st.a + 1, 0, 0, 0
      st.g = now -- its age counts from then (hand.lua)
      local content = call('HGET', MSG, id)
      if rules.o then -- before messages that were sent later
        local key = letGo(st) or keyOf(content)
        call('ZADD', WAIT, 0, placed(key, id))
        line(TURN, {key})
      else
        local priority = string.sub(content, 1, 1)
        call('ZADD', DUE, ranked(priority, now), priority .. ':' .. id)
      end
      wake = true
    else
      st.z, st.q = 'discarded', now
      local key = letGo(st)
      if key and goOn(key) then wake = true end
      kept[#kept + 1] = id
    end
    call('HSET', ST, id, pack(st))
  end
end
finish()
return were
