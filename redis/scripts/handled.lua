-- Which of the messages that were set aside (apart.lua) a claim gets.

-- firstApart returns the first members between two bounds, most at most.
local function firstApart(from, to, most) return call('ZRANGEBYLEX', APART, from, to, 'LIMIT', 0, most) end

local function kindApart(member) return string.match(member, '^.(%Z*)') end

-- handled returns the bounds between which APART has messages of kinds, or of all if kinds is
-- nil; rank is "1" for those that must run alone, else "0"; of paused kinds, which may be nil, it
-- gets none. Each time another kind may be the first, so that none starves. While kinds are
-- paused, those of all are of at most 20 kinds.
local function handled(kinds, rank, paused)
  local over = '(' .. (rank + 1)
  if not kinds then
    local at = rank .. (kindApart(call('ZRANDMEMBER', APART) or '') or '') .. '\0'
    local parts, bounds = {{'[' .. at, over}, {'[' .. rank, '(' .. at}}, {}
    if not paused then return parts end
    for _, part in ipairs(parts) do
      local from = part[1]
      while #bounds < 20 do
        local member = firstApart(from, part[2], 1)[1]
        if not member then break end
        local kind = kindApart(member)
        from = '(' .. rank .. kind .. '\1'
        if not paused[kind] then bounds[#bounds + 1] = {'[' .. rank .. kind .. '\0', from} end
      end
    end
    return bounds
  end
  local here, n, from = {}, 0, '[' .. rank
  repeat -- over the kinds in APART, unless they are more than kinds
    local member = firstApart(from, over, 1)[1]
    if not member then break end
    local kind = kindApart(member)
    here[kind], n, from = true, n + 1, '(' .. rank .. kind .. '\1'
  until n > #kinds
  local bounds, turn = {}, now % math.max(#kinds, 1)
  for i = 1, #kinds do
    local kind = kinds[(turn + i) % #kinds + 1]
    if (n > #kinds or here[kind]) and not (paused and paused[kind]) then bounds[#bounds + 1] = {'[' .. rank .. kind .. '\0', '(' .. rank .. kind .. '\1'} end
  end
  return bounds
end

-- hasApart returns whether messages of kinds, or any if kinds is nil, were set aside and are of no
-- paused kind.
local function hasApart(kinds, paused)
  if not kinds and not paused then return call('EXISTS', APART) == 1 end
  for _, rank in ipairs({'0', '1'}) do
    for _, b in ipairs(handled(kinds, rank, paused)) do
      if firstApart(b[1], b[2], 1)[1] then return true end
    end
  end
  return false
end
