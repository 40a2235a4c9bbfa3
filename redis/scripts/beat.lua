#!lua flags=allow-oom
-- Keeps a worker's lease of a subscription, and looks at the subscription.
-- keys: of the subscription
-- args: number of the subscription; worker, or "" to look only; lease in µs; name of the
--       worker; begin: "1" begins a lease, "2" extends one that has not ended, "" extends one
--       that exists; kinds as in claim.lua; paused: the paused kinds, packed, or "", as of a
--       revision of the queue's options, or ""
-- returns: "gone", or a list: "1" if messages can be handed out; µs until the next message is
--       due ("-1": unknown); "1" if a lease has ended; "1" if the limits of the queue are
--       reached; "1" if begin was "2" and the lease was extended; a list of the worker's
--       deliveries whose messages were cancelled while they ran
-- cost: at most eighteen commands, two more while deliveries are cancelled; while messages are set aside as much more as in claim.lua
local number, worker, lease, name, begin, kinds, paused, revision = unpack(ARGV)
local WAIT, TURN, FRESH, LATER, AGAIN = unpack(KEYS, 34, 38) -- of queues that look at keys
-- includes: keys, limits, handled, notes
local meta, own = call('HMGET', META, 'paused', 'limits', 'rev'), call('HMGET', TALLY, 'no', 'full', 'first', 'apart', 'cancels')
if own[1] ~= number or own[3] then return 'gone' end
local kept = ''
if begin == '1' then
  call('ZADD', LEASES, text(now + lease), worker)
  call('HSET', NAMES, worker, name)
elseif begin == '2' then
  if tonumber(call('ZSCORE', LEASES, worker) or 0) >= now then
    call('ZADD', LEASES, text(now + lease), worker)
    kept = '1'
  end
elseif worker ~= '' then
  call('ZADD', LEASES, 'XX', text(now + lease), worker)
end
local cancels = {}
if own[5] and worker ~= '' then
  local all, tags = stillHeld(own[5])
  for i, tag in ipairs(tags) do
    if string.match(tag, '^[^:]+') == worker then cancels[#cancels + 1] = all[i] end
  end
  if #all == 0 then call('HDEL', TALLY, 'cancels') else call('HSET', TALLY, 'cancels', pack(all)) end
end
local found, due = '', nextDue()
for _, key in ipairs({ALONE, LATER}) do
  local next = tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  if next and (not due or next < due) then due = next end
end
if due and due <= now then found = '1' end
for _, key in pairs(WAIT and {TURN, FRESH, AGAIN} or READY) do
  if found == '' and call('EXISTS', key) == 1 then found = '1' end
end
-- A caller with other options does not know which kinds are paused now. Its claim reads them.
if found == '' and own[4] and ((meta[3] or '') ~= revision or hasApart(kinds ~= '' and unpacked(kinds) or nil, paused ~= '' and unpacked(paused) or nil)) then found = '1' end
local ended = ''
for _, key in ipairs({LEASES, TIMED}) do
  local first = tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  if first and first < now then ended = '1' end
end
if meta[1] then return {'', '-1', ended, '', kept, cancels} end
if meta[2] then
  local most, comes = room(unpacked(meta[2]), tonumber(own[2] or 0), 1)
  if most < 1 then return {'', comes and text(comes - now) or '-1', ended, '1', kept, cancels} end
end
return {found, due and text(math.max(0, due - now)) or '-1', ended, '', kept, cancels}
