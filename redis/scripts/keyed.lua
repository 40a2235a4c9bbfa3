-- Queues that look at keys (keys.go): which key has a turn when. A key in TURN or
-- FRESH is one to look at: it may turn out that it waits for something, and is then
-- put there again by what ends that.
local WAIT, TURN, FRESH, LATER, AGAIN = KEYS[32], KEYS[33], KEYS[34], KEYS[35], KEYS[36]
local HELD, SPENT, STOPPED, PAUSED, ASIDE = KEYS[37], KEYS[38], KEYS[39], KEYS[40], KEYS[41]

-- placed is a message's member of WAIT: those of a key lie together, by their ids.
local function placed(key, id) return key .. '\0' .. string.format('%016.0f', tonumber(id)) end

local function idOf(member) return text(tonumber(string.match(member, '%z(%d+)$'))) end

-- keyOf reads a message's key in its content (message.go).
local function keyOf(content)
  local n, at = string.byte(content, 6), 7
  if n >= 128 then n, at = n - 128 + 128 * string.byte(content, 7), 8 end
  return string.sub(content, at, at + n - 1)
end

-- keyIn splits what RUN holds of a delivery whose key is counted.
local function keyIn(held)
  local holder, key = string.match(held, '^(%Z+)%z(.*)$')
  return holder or held, key
end

-- waiting are the first n of what waits of a key.
local function waiting(key, n)
  return call('ZRANGEBYLEX', WAIT, '[' .. key .. '\0', '(' .. key .. '\1', 'LIMIT', 0, n)
end

-- line puts keys at the end of a line, unless they are in it.
local function line(to, names)
  for i = 1, #names, 1000 do
    local args = {}
    for j = i, math.min(i + 999, #names) do
      args[#args + 1] = text(now + j)
      args[#args + 1] = names[j]
    end
    call('ZADD', to, 'NX', unpack(args))
  end
end

-- freed counts down what is in flight of keys, and lines up those of which more
-- waits. It returns whether there are any.
local freed = {}
local function free()
  local names, set, gone, turn = {}, {}, {}, {}
  for key in pairs(freed) do names[#names + 1] = key end
  local held = got(HELD, names)
  for i, key in ipairs(names) do
    local left = tonumber(held[i] or 0) - freed[key]
    if left > 0 then
      set[#set + 1] = key
      set[#set + 1] = left
    else
      gone[#gone + 1] = key
    end
    if (left <= 0 or not rules.o) and waiting(key, 1)[1] then turn[#turn + 1] = key end
  end
  many('HSET', HELD, set)
  many('HDEL', HELD, gone)
  line(TURN, turn)
  return #turn > 0
end

-- goOn lines a key up if something of it waits. It returns whether it did.
local function goOn(key)
  if not waiting(key, 1)[1] then return false end
  line(TURN, {key})
  return true
end

-- letGo ends that a dead message stops its key.
local function letGo(st)
  local key = st.k
  st.k = nil
  if key and call('HINCRBY', STOPPED, key, -1) <= 0 then call('HDEL', STOPPED, key) end
  return key
end
