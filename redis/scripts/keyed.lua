-- The turns of keys, in queues that look at keys (keys.go). A key in TURN or FRESH must be
-- checked. If it waits for something, it leaves the line, and the end of that wait puts it
-- back.
local WAIT, TURN, FRESH, LATER, AGAIN, HELD, SPENT, STOPPED, PAUSED, ASIDE_WAIT = unpack(KEYS, 34, 43)

-- placed returns a message's member of WAIT, which sorts by key and id.
local function placed(key, id) return key .. '\0' .. string.format('%016.0f', tonumber(id)) end

local function idOf(member) return text(tonumber(string.match(member, '%z(%d+)$'))) end

-- keyOf reads the key in a content (content.go).
local function keyOf(content)
  local n, at = string.byte(content, 6), 7
  if n >= 128 then n, at = n - 128 + 128 * string.byte(content, 7), 8 end
  return string.sub(content, at, at + n - 1)
end

-- keyIn splits a value of RUN into the holder and, if keys are counted, the key.
local function keyIn(held)
  local holder, key = string.match(held, '^(%Z+)%z(.*)$')
  return holder or held, key
end

-- waiting returns the first n waiting members of a key.
local function waiting(key, n)
  return call('ZRANGEBYLEX', WAIT, '[' .. key .. '\0', '(' .. key .. '\1', 'LIMIT', 0, n)
end

-- line adds keys to the end of a line, unless they are in it.
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

-- freed has how many deliveries of each key ended. free subtracts them from those in flight,
-- and gives keys with waiting messages a turn. It returns whether there are any.
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
  freed = {}
  return #turn > 0
end

-- goOn gives a key a turn if it has waiting messages, and returns whether it has.
local function goOn(key)
  if not waiting(key, 1)[1] then return false end
  line(TURN, {key})
  return true
end

-- letGo ends the stop of a key by a dead message, and returns the key.
local function letGo(st)
  local key = st.k
  st.k = nil
  if key and call('HINCRBY', STOPPED, key, -1) <= 0 then call('HDEL', STOPPED, key) end
  return key
end
