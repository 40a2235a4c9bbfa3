-- Messages that were set aside, because a worker had no handler for their kind. APART has each
-- as "1" if it must run alone, else "0", its kind, a zero byte, the time and the message in 16
-- digits each, all with one score. So those of a kind lie together, in the order of that time.
-- The state of such a message has this member as w. While APART exists, TALLY has the field
-- "apart", so that other claims look no further.
local function apartAs(st, id, content)
  return (st.l >= 2 and '1' or '0') .. kindOf(content) .. '\0' .. string.format('%016.0f%016.0f', now, tonumber(id))
end

local function idApart(member) return text(tonumber(string.sub(member, -16))) end

-- putApart adds a message.
local function putApart(member)
  call('ZADD', APART, 0, member)
  call('HSET', TALLY, 'apart', 1)
end

-- leftApart removes messages, and returns how many were there.
local function leftApart(members)
  local n = call('ZREM', APART, unpack(members))
  if call('EXISTS', APART) == 0 then call('HDEL', TALLY, 'apart') end
  return n
end
