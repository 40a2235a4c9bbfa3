#!lua flags=allow-oom
-- Erases what is kept of messages that are settled: kind, states and times stay.
-- keys: of the queue
-- args: 1 the queue's number; then the messages
-- returns: "gone", or per message "erased", "pending" (it is still to be delivered and
--       was left as it is) or "" (it is not there, or was erased before)
-- cost: some eight commands per message
-- includes: keys, words
if call('HGET', META, 'no') ~= ARGV[1] then return 'gone' end
local became = {}
for i = 2, #ARGV do
  local id = ARGV[i]
  local content, before = call('HGET', MSG, id), call('HGET', ST, id)
  local st = before and unpacked(before)
  if content and (not st or st.d or not st.z or st.z == 'waits') then
    became[#became + 1] = 'pending'
  elseif not st or st.e then
    became[#became + 1] = ''
  else
    unword({id})
    if content then
      local _, raw = reader(content)
      raw()
      local kind = raw()
      raw()
      local bare = '\0' .. kind .. '\0' .. raw() .. '\0\0'
      call('HSET', MSG, id, string.sub(content, 1, 1) .. struct.pack('>I4', #bare) .. bare)
    end
    for _, attempt in ipairs(st.s or {}) do
      if attempt.m and attempt.m ~= '' then attempt.m = 'erased' end
      attempt.r = nil
    end
    st.t, st.e = nil, now
    call('HSET', ST, id, pack(st))
    became[#became + 1] = 'erased'
  end
end
return became
