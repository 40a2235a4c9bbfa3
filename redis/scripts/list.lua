#!lua flags=no-writes
-- Lists messages, newest first.
-- keys: of the subscription
-- args: number of the subscription; rules; highest id; most, the maximum of ids; places to
--       look in: w the ready lists, k KNOWN, d dead letters, r messages in flight, p messages
--       that were settled together; running, the maximum in flight for a look there
-- returns: "gone", "many" (more than running are in flight), or the ids
-- cost: some 25 commands per ready list, one for each other place; grows with most, with the
--       messages in flight and with those kept of a queue without retention
local number, rules, highest, most, places, running = unpack(ARGV)
-- includes: keys, rules, current
local highest, most = tonumber(highest), tonumber(most)
local seen, found = {}, {}
local function add(id)
  local n = tonumber(id)
  if n <= highest and not seen[n] then
    seen[n] = true
    found[#found + 1] = n
  end
end
local function look(where) return string.find(places, where, 1, true) end
if look('w') then
  for _, key in ipairs({READY0, READY1, READY2, READY3, ASIDE0, ASIDE1, ASIDE2, ASIDE3}) do -- each is in the order of ids
    local from, to = 0, call('LLEN', key)
    if to > 0 and tonumber(call('LINDEX', key, -1)) > highest then
      while from < to do
        local middle = math.floor((from + to) / 2)
        if tonumber(call('LINDEX', key, middle)) > highest then to = middle else from = middle + 1 end
      end
    end
    if to > 0 then
      for _, id in ipairs(call('LRANGE', key, math.max(0, to - most), to - 1)) do add(id) end
    end
  end
end
for where, key in pairs({k = KNOWN, d = DEAD}) do
  if look(where) then
    for _, id in ipairs(call('ZREVRANGEBYSCORE', key, text(highest), '-inf', 'LIMIT', 0, most)) do add(id) end
  end
end
if look('r') then
  if call('HLEN', RUN) > tonumber(running) then return 'many' end
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
