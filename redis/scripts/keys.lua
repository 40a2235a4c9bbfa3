-- What every script begins with: names for its keys (keys.go says what each
-- holds), and the time.
--
-- Times are microseconds since 2025, and so are ids: an id is the time at which it
-- was given, or one more than the id before it. Both are exact in a double until
-- the year 2310, and become text by text() alone.
local META, MSG, ST, RUN, DUE, ALONE = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local READY = {['0'] = KEYS[7], ['1'] = KEYS[8], ['2'] = KEYS[9], ['3'] = KEYS[10]}
local STALE, LEASES, NAMES, CLAIMS, CLAIM, OPEN = KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[15], KEYS[16]
local TIMED, DEAD, PAST, ASLEEP = KEYS[17], KEYS[18], KEYS[19], KEYS[20]
-- TALLY is META of the subscription that a queue is born with: of that one alone it has
-- "first", once it has ended.
local KNOWN, WORDS, TALLY, HOLDERS, BELL = KEYS[27], KEYS[28], KEYS[29], KEYS[30], KEYS[31]

local call, pack, unpacked = redis.call, cmsgpack.pack, cmsgpack.unpack
local clock = call('TIME')
local now = (clock[1] - 1735689600) * 1000000 + clock[2]

local function text(n) return string.format('%.0f', n) end

-- many calls a command with any number of arguments, 2,000 at a time.
local function many(command, key, args)
  for i = 1, #args, 2000 do
    call(command, key, unpack(args, i, math.min(i + 1999, #args)))
  end
end

-- got is HMGET of any number of fields.
local function got(key, fields)
  local all = {}
  for i = 1, #fields, 2000 do
    local some = call('HMGET', key, unpack(fields, i, math.min(i + 1999, #fields)))
    for j = 1, #some do all[i + j - 1] = some[j] end
  end
  return all
end

-- What is in DUE lies by priorities: its score is its time, behind STEP for each priority
-- before its own. What is left of a double has 51 bits: times from FAR on, in May 2096, are
-- there to the second. ALONE has them so, too, without priorities.
local STEP, FAR = 2251799813685248, 2251250000000000
local function ranked(priority, due)
  if due >= FAR then due = FAR + math.ceil((due - FAR) / 1000000) end
  return text(priority * STEP + due)
end

-- dueOf is the time in a score.
local function dueOf(score)
  local due = score % STEP
  return due < FAR and due or FAR + (due - FAR) * 1000000
end

-- nextDue is when the first of DUE may be handed out, of whatever priority (FAR or later: far
-- away).
local function nextDue()
  local next
  if call('EXISTS', DUE) == 0 then return next end
  for p = 0, 3 do
    local first = call('ZRANGEBYSCORE', DUE, text(p * STEP), '(' .. text((p + 1) * STEP), 'WITHSCORES', 'LIMIT', 0, 1)[2]
    if first and (not next or first - p * STEP < next) then next = first - p * STEP end
  end
  return next
end

-- ring wakes who sleeps at the queue whose keys come behind at, if anybody does. It comes
-- last and fails nothing: what was done is done, and who sleeps looks by himself at last.
local function ring(at)
  if redis.pcall('DEL', KEYS[at + 20]) == 1 then redis.pcall('PUBLISH', KEYS[at + 31], '') end
end
