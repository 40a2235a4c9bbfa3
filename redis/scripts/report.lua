#!lua
-- Adds a worker's counts to the charts of a queue.
-- keys: META; STATS_MINUTE, STATS_HOUR, ERRORS_MINUTE, ERRORS_HOUR (keys.go)
-- args: number of the queue; minute, the number of which the keys are; detail and hours, the
--       seconds after which those of a minute and of an hour end; report, packed, a list: f
--       fields for the counts, of which the first is used for which there is room; c counts in
--       order (charts.go); g field for the errors; e errors: f fingerprint, t text, m message,
--       n count; stored also with b and l, the times when they came first and last
-- returns: "gone"; the time, if the minute has ended or not begun; or ""
-- cost: ten commands, six to twelve per entry of the report, and six more if it has errors; some
--       30 µs per entry of a busy kind
local META, STATS_MINUTE, STATS_HOUR, ERRORS_MINUTE, ERRORS_HOUR = unpack(KEYS)
local number, minute, detail, hours, report = unpack(ARGV)
local call, pack, unpacked = redis.call, cmsgpack.pack, cmsgpack.unpack
local clock = call('TIME')
local now = (clock[1] - 1735689600) * 1000000 + clock[2]
if call('HGET', META, 'no') ~= number then return 'gone' end
if math.floor(clock[1] / 60) ~= tonumber(minute) then return string.format('%.0f', now) end

-- The maximum of fields in a hash when one of the first, second and third fields of an entry is
-- added; of groups of errors; and of errors in a group.
local ROOM, GROUPS, ERRORS = {1000, 2000, 3000}, 100, 10

local function stored(key, field)
  local is = call('HGET', key, field)
  return is and unpacked(is)
end

-- added returns the sum of two lists of counts, each ordered by outcomes and buckets (charts.go).
local function added(a, b)
  local sum, n, i, j = {}, 0, 1, 1
  while a[i] or b[j] do
    local x, y = a[i], b[j]
    if x == y then
      sum[n + 1], sum[n + 2], i, j = x, a[i + 1] + b[j + 1], i + 2, j + 2
    elseif not y or x and x < y then
      sum[n + 1], sum[n + 2], i = x, a[i + 1], i + 2
    else
      sum[n + 1], sum[n + 2], j = y, b[j + 1], j + 2
    end
    n = n + 2
  end
  return sum
end

local function count(key, entry)
  local size, field = call('HLEN', key), nil
  for i, name in ipairs(entry.f) do
    if not field and (size < ROOM[i] or call('HEXISTS', key, name) == 1) then field = name end
  end
  if not field then return end
  local was = stored(key, field)
  call('HSET', key, field, pack(was and added(was, entry.c) or entry.c))
end

-- Of more than ERRORS the least frequent goes, of several of these the one that came last the
-- longest ago. Each new one stays at first: it may become frequent.
local function fail(key, entry)
  local all = stored(key, entry.g)
  if not all then
    if call('HLEN', key) >= GROUPS then return end
    all = {}
  end
  for _, new in ipairs(entry.e) do
    local is
    for _, e in ipairs(all) do
      if e.f == new.f then is = e end
    end
    if is then
      is.t, is.m, is.n, is.l = new.t, new.m, is.n + new.n, now
    else
      if #all >= ERRORS then
        table.sort(all, function(a, b)
          if a.n ~= b.n then return a.n > b.n end
          return a.l > b.l
        end)
        table.remove(all)
      end
      all[#all + 1] = {f = new.f, t = new.t, m = new.m, n = new.n, b = now, l = now}
    end
  end
  call('HSET', key, entry.g, pack(all))
end

local ends = {[STATS_MINUTE] = detail, [ERRORS_MINUTE] = detail, [STATS_HOUR] = hours, [ERRORS_HOUR] = hours}
for _, entry in ipairs(unpacked(report)) do
  for _, key in ipairs({STATS_MINUTE, STATS_HOUR}) do count(key, entry) end
  for _, key in ipairs(entry.e and {ERRORS_MINUTE, ERRORS_HOUR} or {}) do fail(key, entry) end
end
for key, after in pairs(ends) do call('EXPIRE', key, after) end
return ''
