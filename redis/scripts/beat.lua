#!lua flags=allow-oom
-- Keeps a worker's lease of a queue, and looks at the queue.
-- keys: of the queue
-- args: 1 the queue's number; 2 the worker, or "" to look only; 3 its lease in
--       µs; 4 its name; 5 "1" to begin a lease, "2" to keep one that has not ended, else
--       one that was not begun stays so
-- returns: "gone", or a list: "1" if something may be handed out, µs until the next
--       is due ("-1": none known), "1" if a lease has ended, "1" if the queue's limits
--       let nothing through, "1" if one that has not ended was kept
-- cost: at most eighteen commands
-- includes: keys, limits
local meta, own = call('HMGET', META, 'paused', 'limits'), call('HMGET', TALLY, 'no', 'full', 'first')
if own[1] ~= ARGV[1] or own[3] then return 'gone' end
local kept = ''
if ARGV[5] == '1' then
  call('ZADD', LEASES, text(now + ARGV[3]), ARGV[2])
  call('HSET', NAMES, ARGV[2], ARGV[4])
elseif ARGV[5] == '2' then
  if tonumber(call('ZSCORE', LEASES, ARGV[2]) or 0) >= now then
    call('ZADD', LEASES, text(now + ARGV[3]), ARGV[2])
    kept = '1'
  end
elseif ARGV[2] ~= '' then
  call('ZADD', LEASES, 'XX', text(now + ARGV[3]), ARGV[2])
end
local found, due = '', nextDue()
for _, key in ipairs({ALONE, KEYS[35]}) do
  local next = tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  if next and (not due or next < due) then due = next end
end
if due and due <= now then found = '1' end
for _, key in pairs(KEYS[32] and {KEYS[33], KEYS[34], KEYS[36]} or READY) do
  if found == '' and call('EXISTS', key) == 1 then found = '1' end
end
local ended = ''
for _, key in ipairs({LEASES, TIMED}) do
  local first = tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  if first and first < now then ended = '1' end
end
if meta[1] then return {'', '-1', ended, '', kept} end
if meta[2] then
  local most, comes = room(unpacked(meta[2]), tonumber(own[2] or 0), 1)
  if most < 1 then return {'', comes and text(comes - now) or '-1', ended, '1', kept} end
end
return {found, due and text(math.max(0, due - now)) or '-1', ended, '', kept}
