#!lua flags=allow-oom
-- Hands out messages: to a worker, until its lease of the queue ends, or to a
-- receiver until a time. A worker's claim that comes again under its number
-- gets what that has and is not settled.
-- keys: of the queue
-- args: 1 the queue's number; 2 its rules (rules.lua); 3 the most; 4 the
--       priorities in order, such as "0123", and "1" if of an odd number what is due
--       gets the greater half, else "0"; 5 "1" if one that must run alone may
--       come; 6 the worker and 7 its number, or "" and the lease in µs; 8 "1" if the
--       queue hands out at most once: handing out settles
-- returns: "gone"; "fill" (fill.lua has not come to its end); "join": the worker has no lease of the queue (any more);
--       "number": the number is not above the last; or a list: "1" if one waits
--       to run alone, µs until the next is due ("-1": none known), deliveries of first
--       attempts (their messages have the same id), their contents, and a list of
--       the others, six each: delivery, message, content, state, when it was due
--       (or ""), alone; and "limits" if the queue has some, "reached" if they let
--       nothing through
-- cost: some twelve commands a call, and five where something is or falls due; per message
--       one field got and one set, one popped; of what was due two and a half more
-- includes: keys, rules, limits, keyed, words, holders, ended, hand

-- take hands out entries of a sorted set, whose members and scores are given in turn.
local function take(key, from, to, entries)
  local members, of = {}, {}
  for i = from, to do
    members[#members + 1] = entries[2 * i - 1]
    of[#of + 1] = string.sub(entries[2 * i - 1], 3)
  end
  if #of == 0 then return end
  many('ZREM', key, members)
  local content, state = got(MSG, of), got(ST, of)
  local plain = {} -- known only as it was due later
  for i, id in ipairs(of) do
    if not state[i] then plain[#plain + 1] = id end
  end
  many('ZREM', KNOWN, plain)
  for i, id in ipairs(of) do
    if content[i] then hand(id, content[i], state[i], text(entries[2 * (from + i - 1)] % STEP)) end
  end
end

local wants, passing = '', 1000
local alone = call('ZRANGEBYSCORE', ALONE, '-inf', text(now), 'WITHSCORES', 'LIMIT', 0, 1)
if #alone > 0 then
  if ARGV[5] == '1' then
    take(ALONE, 1, 1, alone)
  else
    wants = '1'
  end
end
if #deliveries == 0 then
  local dues, stale = call('EXISTS', DUE) == 1, call('EXISTS', STALE) == 1

  -- fresh hands out up to n of a ready list. What was taken back there is passed over, some
  -- 1,000 a call.
  local function fresh(key, n)
    while n > 0 and passing > 0 do
      local popped = call('LPOP', key, n)
      if not popped then return end
      local content = got(MSG, popped)
      local skip = stale and call('SMISMEMBER', STALE, unpack(popped)) or {}
      for j, id in ipairs(popped) do
        if skip[j] == 1 then
          call('SREM', STALE, id)
          passing = passing - 1
        elseif content[j] then
          hand(id, content[j])
          n = n - 1
        end
      end
    end
  end

  for i = 1, 4 do
    local left = most - #deliveries
    if left == 0 or passing <= 0 then break end
    local p = string.sub(ARGV[4], i, i)
    local due = dues and call('ZRANGEBYSCORE', DUE, text(p * STEP), ranked(p, now), 'WITHSCORES', 'LIMIT', 0, left) or {}
    if #due > 0 and call('EXISTS', READY[p]) == 1 then -- each gets its half, and what the other leaves
      local half = math.min(#due / 2, math.floor((left + string.sub(ARGV[4], 5)) / 2))
      take(DUE, 1, half, due)
      fresh(READY[p], most - #deliveries)
      take(DUE, half + 1, math.min(#due / 2, half + most - #deliveries), due)
    else
      take(DUE, 1, #due / 2, due)
      fresh(READY[p], most - #deliveries)
    end
  end
end
if #deliveries == 0 then
  local due, lone = nextDue(), wants == '' and tonumber(call('ZRANGE', ALONE, 0, 0, 'WITHSCORES')[2])
  if lone and not (due and due < lone) then due = lone end
  if passing <= 0 then due = now end
  return {wants, due and text(math.max(0, due - now)) or '-1', ids, contents, others, said}
end
return answer(wants)
