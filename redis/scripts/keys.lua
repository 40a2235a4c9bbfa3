-- The beginning of each script for a subscription: the names of its keys, whose contents
-- keys.go describes, and the time.
--
-- Times are microseconds since 2025. An id is the time at which it was assigned, or the id
-- before it plus one. A double represents both exactly until 2310; only text() formats them.
--
-- TALLY of the default subscription is META. Only there it can have the field "first", once
-- the subscription has ended.
local META, MSG, ST, RUN, DUE, ALONE, READY0, READY1, READY2, READY3 = unpack(KEYS, 1, 10)
local STALE, LEASES, NAMES, CLAIMS, CLAIM, OPEN, TIMED, DEAD, PAST, ASLEEP = unpack(KEYS, 11, 20)
local ASIDE_DUE, ASIDE_ALONE, ASIDE0, ASIDE1, ASIDE2, ASIDE3 = unpack(KEYS, 21, 26)
local KNOWN, WORDS, TALLY, HOLDERS, APART, ASIDE_APART, BELL = unpack(KEYS, 27, 33)
local READY = {['0'] = READY0, ['1'] = READY1, ['2'] = READY2, ['3'] = READY3}

local call, pack, unpacked = redis.call, cmsgpack.pack, cmsgpack.unpack
local clock = call('TIME')
local now = (clock[1] - 1735689600) * 1000000 + clock[2]

local function text(n) return string.format('%.0f', n) end

-- many runs a command for any number of arguments, 2,000 at a time.
local function many(command, key, args)
  for i = 1, #args, 2000 do
    call(command, key, unpack(args, i, math.min(i + 1999, #args)))
  end
end

-- got is HMGET for any number of fields.
local function got(key, fields)
  local all = {}
  for i = 1, #fields, 2000 do
    local some = call('HMGET', key, unpack(fields, i, math.min(i + 1999, #fields)))
    for j = 1, #some do all[i + j - 1] = some[j] end
  end
  return all
end

-- A score in DUE is the priority times STEP, plus the due time. That leaves 51 bits of a
-- double for the time. Times from FAR (May 2096) on are therefore stored in seconds. ALONE
-- stores times the same way, without priorities.
local STEP, FAR = 2251799813685248, 2251250000000000
local function ranked(priority, due)
  if due >= FAR then due = FAR + math.ceil((due - FAR) / 1000000) end
  return text(priority * STEP + due)
end

-- dueOf returns the time in a score.
local function dueOf(score)
  local due = score % STEP
  return due < FAR and due or FAR + (due - FAR) * 1000000
end

-- nextDue returns the earliest time in DUE over all priorities. It is not exact from FAR on.
local function nextDue()
  local next
  if call('EXISTS', DUE) == 0 then return next end
  for p = 0, 3 do
    local first = call('ZRANGEBYSCORE', DUE, text(p * STEP), '(' .. text((p + 1) * STEP), 'WITHSCORES', 'LIMIT', 0, 1)[2]
    if first and (not next or first - p * STEP < next) then next = first - p * STEP end
  end
  return next
end

-- ring wakes the processes that sleep at a queue, if there are any. It runs last, and its
-- failure fails no script: the changes are made, and a sleeping process looks again by itself.
local function ring(asleep, bell)
  if redis.pcall('DEL', asleep) == 1 then redis.pcall('PUBLISH', bell, '') end
end
