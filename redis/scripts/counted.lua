-- counted returns the counters of the subscription, in the form of count.lua.
local function counted()
  local meta = call('HMGET', META, 'paused')
  local own = call('HMGET', TALLY, 'sent', 'done', 'retried', 'lost', 'withdrawn', 'expired')
  local apart = call('ZCARD', APART)
  local depth = call('ZCARD', DUE) + call('ZCARD', ALONE) + apart - call('SCARD', STALE)
  local oldest
  for _, key in pairs(READY) do
    depth = depth + call('LLEN', key)
    local first = tonumber(call('LINDEX', key, 0) or nil)
    if first and (not oldest or first < oldest) then oldest = first end
  end
  local paused = {}
  if rules.y then
    depth = call('ZCARD', WAIT) + (rules.o and 0 or depth)
    paused = call('ZRANGE', PAUSED, 0, 99)
    for _, key in ipairs({TURN, FRESH}) do -- of the next keys only
      local name = call('ZRANGE', key, 0, 0)[1]
      local first = name and waiting(name, 1)[1]
      first = first and tonumber(idOf(first))
      if first and (not oldest or first < oldest) then oldest = first end
    end
  end
  local due = nextDue()
  if due and due <= now and (not oldest or due < oldest) then oldest = due end
  local aside, place = {}, {}
  for _, rank in ipairs(apart > 0 and {'0', '1'} or {}) do
    local from = '[' .. rank
    for _ = 1, 100 do
      local first = firstApart(from, '(' .. (rank + 1), 1)[1]
      if not first then break end
      local kind, since = kindApart(first), tonumber(string.sub(first, -32, -17))
      if (not oldest or since < oldest) and not (rules.q and rules.q[kind]) then oldest = since end
      if not place[kind] then
        place[kind] = #aside
        aside[#aside + 1], aside[#aside + 2], aside[#aside + 3] = kind, 0, since
      end
      local at = place[kind]
      from = '(' .. rank .. kind .. '\1'
      aside[at + 2] = aside[at + 2] + call('ZLEXCOUNT', APART, '[' .. rank .. kind .. '\0', from)
      aside[at + 3] = math.min(aside[at + 3], since)
    end
  end
  for i = 1, #aside, 3 do aside[i + 1], aside[i + 2] = text(aside[i + 1]), text(math.max(0, now - aside[i + 2])) end
  return {
    text(depth), text(call('HLEN', RUN)), text(call('ZCARD', DEAD)), meta[1] or '',
    own[1] or '0', own[2] or '0', own[3] or '0', own[4] or '0', own[5] or '0',
    oldest and text(math.max(0, now - oldest)) or '-1', text(now), paused, own[6] or '0', aside,
  }
end
