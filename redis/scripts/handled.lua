-- Which of the messages that were set aside (apart.lua) a claim gets.

-- firstApart returns the first members between two bounds, most at most.
local function firstApart(from, to, most) return call('ZRANGEBYLEX', APART, from, to, 'LIMIT', 0, most) end

local function kindApart(member) return string.match(member, '^.(%Z*)') end

-- handled returns the bounds between which APART has messages of kinds, or of all if kinds is
-- nil; rank is "1" for those that must run alone, else "0". Each time another kind may be the
-- first, so that none starves.
local function handled(kinds, rank)
  local over = '(' .. (rank + 1)
  if not kinds then
    local at = rank .. (kindApart(call('ZRANDMEMBER', APART) or '') or '') .. '\0'
    return {{'[' .. at, over}, {'[' .. rank, '(' .. at}}
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
    if n > #kinds or here[kind] then bounds[#bounds + 1] = {'[' .. rank .. kind .. '\0', '(' .. rank .. kind .. '\1'} end
  end
  return bounds
end

-- hasApart returns whether messages of kinds, or any if kinds is nil, were set aside.
local function hasApart(kinds)
  if not kinds then return call('EXISTS', APART) == 1 end
  for _, rank in ipairs({'0', '1'}) do
    for _, b in ipairs(handled(kinds, rank)) do
      if firstApart(b[1], b[2], 1)[1] then return true end
    end
  end
  return false
end
