#!lua
-- Records what handlers noted: in the states of their messages, which the end of a delivery
-- reads (ended.lua). A message in its first attempt gets a state, as one that was due later has.
-- keys: of the subscription
-- args: number of the subscription; lease in µs from now, 0 for none; then notes, each packed
--       with its delivery as d (note.go)
-- returns: for each note 1 if the delivery is still held, 2 if its message was also cancelled,
--       else 0
-- cost: some five commands per note
local number, lease = unpack(ARGV, 1, 2)
-- includes: keys, notes
local own, was = call('HMGET', TALLY, 'no', 'first'), {}
local open = own[1] == number and not own[2] -- a subscription that has ended holds nothing
for i = 3, #ARGV do
  local one = unpacked(ARGV[i])
  local held = open and call('HGET', RUN, one.d)
  was[i - 2] = held and 1 or 0
  if held then
    local holder, key = string.match(held, '^(%Z+)(.*)$')
    local tag, id = string.match(holder, '^([^/]+)/(.+)$')
    local st
    if tag then
      st = unpacked(call('HGET', ST, id))
    else
      id, st = one.d, {a = 1, f = 0, l = 0, x = 0, d = one.d}
      call('HSET', RUN, one.d, holder .. '/' .. id .. key)
      call('ZADD', KNOWN, id, id)
    end
    local n = st.n or {}
    n.k = one.k or n.k
    if one.p then n.p, n.x = one.p, one.x end
    if one.g then n.g = logTail((n.g or '') .. one.g, logMost) end
    st.n = n
    if n.q then was[i - 2] = 2 end
    call('HSET', ST, id, pack(st))
    if lease ~= '0' and call('ZSCORE', TIMED, one.d) then call('ZADD', TIMED, 'XX', text(now + lease), one.d) end
  end
end
return was
