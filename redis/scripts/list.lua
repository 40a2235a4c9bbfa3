#!lua flags=no-writes
-- Lists messages, newest first.
-- keys: of the queue
-- args: 1 the queue's number; 2 its rules (rules.lua); 3 the highest id; 4 the most; 5
--       where to look: w the ready lists, k what is known otherwise, d dead letters, r what
--       is handed out, p what was settled together; 6 the most that may be handed out, to
--       look there
-- returns: "gone", "many" (more are handed out), or the ids
-- cost: per ready list some 25 commands, else one per place; grows with the most, with
--       what is handed out, and with what is kept of a queue without retention
-- includes: keys, rules, current
local highest, most = tonumber(ARGV[3]), tonumber(ARGV[4])
local seen, found = {}, {}
local function add(id)
  local n = tonumber(id)
  if n <= highest and not seen[n] then
    seen[n] = true
    found[#found + 1] = n
  end
end
local function look(where) return string.find(ARGV[5], where, 1, true) end
if look('w') then
  for _, i in ipairs({7, 8, 9, 10, 23, 24, 25, 26}) do -- each in the order of ids
    local from, to = 0, call('LLEN', KEYS[i])
    if to > 0 and tonumber(call('LINDEX', KEYS[i], -1)) > highest then
      while from < to do
        local middle = math.floor((from + to) / 2)
        if tonumber(call('LINDEX', KEYS[i], middle)) > highest then to = middle else from = middle + 1 end
      end
    end
    if to > 0 then
      for _, id in ipairs(call('LRANGE', KEYS[i], math.max(0, to - most), to - 1)) do add(id) end
    end
  end
end
for where, key in pairs({k = KNOWN, d = DEAD}) do
  if look(where) then
    for _, id in ipairs(call('ZREVRANGEBYSCORE', key, text(highest), '-inf', 'LIMIT', 0, most)) do add(id) end
  end
end
if look('r') then
  if call('HLEN', RUN) > tonumber(ARGV[6]) then return 'many' end
  local all = call('HGETALL', RUN)
  for i = 1, #all, 2 do add(string.match(all[i + 1], '^[^/%z]+/(%d+)') or all[i]) end
end
if look('p') then
  for _, e in ipairs(call('LRANGE', PAST, -10000, -1)) do
    if string.sub(e, 1, 1) == 'B' then
      for _, id in ipairs(unpacked(string.sub(e, 2)).i) do add(id) end
    end
  end
end
table.sort(found, function(a, b) return a > b end)
local ids = {}
for i = 1, math.min(most, #found) do ids[i] = text(found[i]) end
return ids
