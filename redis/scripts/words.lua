-- What messages are found by. KNOWN has those that a ready list, RUN and PAST do not
-- tell by their place: what is due later, was tried before, or is kept by itself.
-- WORDS has, per reference ("r") and term ("t") of a message that is there or kept,
-- the word, a zero byte and the id, all of one score: so they are in order of the
-- words, and of each word's messages.
local function entry(word, id) return word .. '\0' .. string.format('%016.0f', id) end

-- reader reads the words of a content (message.go) one after the other: count reads a
-- number, and raw a word with its length before it.
local function reader(content)
  local at = 6
  local function count()
    local n, unit, b = 0, 1, nil
    repeat
      b = string.byte(content, at)
      n, unit, at = n + b % 128 * unit, unit * 128, at + 1
    until b < 128
    return n
  end
  local function raw()
    local from, n = at, count()
    at = at + n
    return string.sub(content, from, at - 1), n
  end
  return count, raw
end

-- wordsOf are those of a content, and whether it has terms.
local function wordsOf(content)
  local count, raw = reader(content)
  local all = {}
  local function add(kind)
    local word, n = raw()
    if n > 0 then all[#all + 1] = kind .. string.sub(word, -n) end
  end
  raw() -- key
  raw() -- kind
  add('r')
  raw() -- content type
  for _ = 1, 2 * count() do raw() end
  local terms = count()
  for _ = 1, terms do add('t') end
  return all, terms > 0
end

local function know(ids)
  local all = {}
  for _, id in ipairs(ids) do
    all[#all + 1] = id
    all[#all + 1] = id
  end
  many('ZADD', KNOWN, all)
end

-- parted parts messages that have words from those that have none.
local function parted(ids)
  if #ids == 0 or call('EXISTS', WORDS) == 0 then return {}, ids end
  local with, without, states = {}, {}, got(ST, ids)
  for i, content in ipairs(got(MSG, ids)) do
    local found = content and wordsOf(content) or {}
    for _, term in ipairs(states[i] and unpacked(states[i]).t or {}) do found[#found + 1] = 't' .. term end
    if #found > 0 then
      with[#with + 1] = {ids[i], content, found}
    else
      without[#without + 1] = ids[i]
    end
  end
  return with, without
end

-- unword lets messages be found by no word any more.
local function unword(ids)
  local gone = {}
  for _, m in ipairs((parted(ids))) do
    for _, word in ipairs(m[3]) do gone[#gone + 1] = entry(word, m[1]) end
  end
  many('ZREM', WORDS, gone)
end
