#!lua flags=no-writes
-- Returns all that is known of messages.
-- keys: of the subscription
-- args: number of the subscription; rules; then the messages
-- returns: "gone", or five values per message: "1" if the subscription knows it; content or "";
--       state or ""; its due time in µs if that is in the future, or ""; and, packed, when and
--       to which worker it was handed out, if it is in flight
-- cost: some seven commands per message; for an unknown message also all outcomes that are
--       kept of a queue without retention
local number, rules = unpack(ARGV, 1, 2)
-- includes: keys, rules, current, holders
local past
-- together returns the state of a message that is kept in a batch of others.
local function together(id)
  if not past then
    past = {}
    for _, e in ipairs(call('LRANGE', PAST, -10000, -1)) do
      if string.sub(e, 1, 1) == 'B' then
        local b = unpacked(string.sub(e, 2))
        for _, one in ipairs(b.i) do past[one] = b.s end
      end
    end
  end
  return past[id]
end

-- over returns whether the retention of a settled message has ended: it is not shown any
-- more, even if it is not removed yet.
local function over(st)
  if rules.r == 0 then return false end
  local s = unpacked(st)
  if s.d or not s.z or s.z == 'waits' or s.z == 'dead' then return false end
  local at = s.q or s.s and #s.s > 0 and s.s[#s.s].e
  return at and at <= now - rules.r
end

local all = {}
for i = 3, #ARGV do
  local id = ARGV[i]
  local content, st = call('HGET', MSG, id), call('HGET', ST, id)
  local holds = content and markOf(call('HGET', HOLDERS, id), me)
  if st and over(st) then holds, st = nil, nil end
  if not holds and not st then st = together(id) end
  local due, running = '', ''
  if holds then
    local member = string.sub(content, 1, 1) .. ':' .. id
    due = call('ZSCORE', DUE, member) or call('ZSCORE', ALONE, member) or ''
  end
  local held = call('HGET', RUN, st and unpacked(st).d or id)
  if held then
    local tag = string.match(held, '^[^/%z]+')
    local claim = call('HGET', CLAIM, tag)
    running = pack({
      t = claim and unpacked(claim).t or tonumber(string.sub(tag, 2)),
      w = call('HGET', NAMES, string.match(tag, '^[^:]+')) or '',
    })
  end
  all[#all + 1] = (holds or st) and '1' or ''
  all[#all + 1] = content or ''
  all[#all + 1] = st or ''
  all[#all + 1] = due ~= '' and dueOf(due) > now and text(dueOf(due)) or ''
  all[#all + 1] = running
end
return all
