-- Whose a message is. Each subscription has a letter: "@" is that of the one that the
-- queue was born with. HOLDERS has of a message, for each that holds it, the letter and
-- "+" while it wants the payload, or "-" once it only keeps how it went. What is not in
-- HOLDERS is held by "@" alone, if it is there at all.
local me = rules.h or '@'

-- markOf is what a subscription does with a message whose entry in HOLDERS is held; nil
-- if it has nothing to do with it (any more).
local function markOf(held, letter)
  held = held or '@+'
  local at = string.find(held, letter, 1, true)
  return at and string.sub(held, at + 1, at + 1)
end

-- passed lets go of messages, or only of their payloads if it keeps how they went. A
-- content goes when nobody holds it, its payload when nobody wants it and the rules do
-- not retain it. contents may have some of them, by their ids.
local function passed(ids, keeps, contents)
  if #ids == 0 then return end
  local gone, bare = {}, {}
  if call('EXISTS', HOLDERS) == 1 then
    local mark, set, alone = keeps and me .. '-' or '', {}, {}
    for i, held in ipairs(got(HOLDERS, ids)) do
      held = held or '@+'
      local at = string.find(held, me, 1, true)
      if at then
        local left = string.sub(held, 1, at - 1) .. string.sub(held, at + 2) .. mark
        if left == '' then
          gone[#gone + 1] = ids[i]
        elseif not string.find(left, '+', 1, true) then
          bare[#bare + 1] = ids[i]
        end
        if left == '' or #left == 2 and string.sub(left, 1, 1) == '@' then
          alone[#alone + 1] = ids[i]
        else
          set[#set + 1] = ids[i]
          set[#set + 1] = left
        end
      end
    end
    many('HSET', HOLDERS, set)
    many('HDEL', HOLDERS, alone)
  elseif me == '@' then
    if keeps then bare = ids else gone = ids end
  end
  many('HDEL', MSG, gone)
  if rules.p then return end
  for _, id in ipairs(bare) do
    local m = contents and contents[id] or call('HGET', MSG, id)
    if m then call('HSET', MSG, id, string.sub(m, 1, 5 + struct.unpack('>I4', string.sub(m, 2, 5)))) end
  end
end
