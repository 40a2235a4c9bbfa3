-- How messages are found. KNOWN has the messages that are due later, were tried before or
-- are kept one by one: those that are not found in a ready list, RUN or PAST. WORDS has, for
-- each reference ("r") and term ("t") of a stored message, the word, a zero byte and the id,
-- all with one score. So it is sorted by word and id.
local function entry(word, id) return word .. '\0' .. string.format('%016.0f', id) end

-- reader returns two functions that read a content (content.go) from its beginning: count
-- reads a number, and raw reads a word and returns it with its length prefix, and the length.
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

-- kindOf returns the kind of a content.
local function kindOf(content)
  local _, raw = reader(content)
  raw() -- key
  local kind, n = raw()
  return n > 0 and string.sub(kind, -n) or ''
end

-- wordsOf returns the words of a content, and whether it has terms.
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

-- parted splits messages into those with words and those without.
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

-- unword removes messages from WORDS.
local function unword(ids)
  local gone = {}
  for _, m in ipairs((parted(ids))) do
    for _, word in ipairs(m[3]) do gone[#gone + 1] = entry(word, m[1]) end
  end
  many('ZREM', WORDS, gone)
end
