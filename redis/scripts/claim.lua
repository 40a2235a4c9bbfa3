#!lua flags=allow-oom
-- Hands out messages: to a worker, until its lease of the queue ends, or to a
-- receiver until a time. A worker's claim that comes again under its number
-- gets what that has and is not settled.
-- keys: of the queue
-- args: 1 the queue's number; 2 its rules (rules.lua); 3 the most; 4 the
--       priorities in order, such as "0123"; 5 "1" if one that must run alone may
--       come; 6 the worker and 7 its number, or "" and the lease in µs; 8 "1" if the
--       queue hands out at most once: handing out settles
-- returns: "gone"; "fill" (fill.lua has not come to its end); "join": the worker has no lease of the queue (any more);
--       "number": the number is not above the last; or a list: "1" if one waits
--       to run alone, µs until the next is due ("-1": none known), deliveries of first
--       attempts (their messages have the same id), their contents, and a list of
--       the others, six each: delivery, message, content, state, when it was due
--       (or ""), alone; and "limits" if the queue has some, "reached" if they let
--       nothing through
-- cost: some twelve commands a call; per message one field got and one set, one
--       popped; of what was due two and a half more
-- includes: keys, rules, limits, keyed, words, holders, ended, hand

-- take hands out those of a sorted set that are given: score and member in turn.
local function take(key, from, to, entries)
  local members, of = {}, {}
  for i = from, to do
    members[#members + 1] = entries[i][1]
    of[#of + 1] = string.sub(entries[i][1], 3)
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
    if content[i] then hand(id, content[i], state[i], entries[from + i - 1][2]) end
  end
end

local wants = ''
local alone = call('ZRANGEBYSCORE', ALONE, '-inf', text(now), 'WITHSCORES', 'LIMIT', 0, 1)
if #alone > 0 then
  if ARGV[5] == '1' then
    take(ALONE, 1, 1, {{alone[1], alone[2]}})
  else
    wants = '1'
  end
end
if #deliveries == 0 then
  local waiting = false
  for _, key in pairs(READY) do waiting = waiting or call('EXISTS', key) == 1 end
  -- Of what is due a part of each priority is looked at, so that the first goes first.
  local found = call('ZRANGEBYSCORE', DUE, '-inf', text(now), 'WITHSCORES', 'LIMIT', 0, most + 100)
  if #found > 0 then
    local rank, due = {}, {}
    for i = 1, 4 do rank[string.sub(ARGV[4], i, i)] = i end
    for i = 1, #found, 2 do due[#due + 1] = {found[i], found[i + 1], #due} end
    table.sort(due, function(a, b)
      local p, q = rank[string.sub(a[1], 1, 1)], rank[string.sub(b[1], 1, 1)]
      if p ~= q then return p < q end
      return a[3] < b[3]
    end)
    take(DUE, 1, math.min(#due, waiting and math.ceil(most / 2) or most), due)
  end
  if waiting then
    local stale = call('EXISTS', STALE) == 1
    for i = 1, 4 do
      local key = READY[string.sub(ARGV[4], i, i)]
      while #deliveries < most do
        local popped = call('LPOP', key, most - #deliveries)
        if not popped then break end
        local content = got(MSG, popped)
        local skip = stale and call('SMISMEMBER', STALE, unpack(popped)) or {}
        for j, id in ipairs(popped) do
          if skip[j] == 1 then
            call('SREM', STALE, id)
          elseif content[j] then
            hand(id, content[j])
          end
        end
      end
    end
  end
end
if #deliveries == 0 then
  local next = call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
  local other = call('ZRANGE', ALONE, 0, 0, 'WITHSCORES')
  local due = tonumber(next[2] or other[2])
  if due and other[2] and wants == '' then due = math.min(due, tonumber(other[2])) end
  if wants == '1' then due = tonumber(next[2]) end
  return {wants, due and text(math.max(0, due - now)) or '-1', ids, contents, others, said}
end
return answer(wants)
