-- Which subscriptions hold a message. Each subscription has a letter; that of the default one
-- is "@". For each holder of a message, HOLDERS has the letter followed by "+" while it needs
-- the payload, or by "-" once it only keeps the outcome. A message that is not in HOLDERS is
-- held by "@" alone, if it exists.
local me = rules.h or '@'

-- markOf returns the mark of a subscription in a message's entry in HOLDERS, or nil if the
-- subscription does not hold the message.
local function markOf(held, letter)
  held = held or '@+'
  local at = string.find(held, letter, 1, true)
  return at and string.sub(held, at + 1, at + 1)
end

-- passed lets go of messages, or if keeps only of their payloads. It removes contents without
-- a holder, and payloads that no holder needs and the rules do not retain. contents may have
-- some of the contents by id.
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
    if m then call('HSET', MSG, id, string.sub(m, 1, 5 + struct.unpack('>I3', string.sub(m, 3, 5)))) end
  end
end
