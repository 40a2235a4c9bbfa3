#!lua flags=no-writes
-- Counts the messages of a subscription.
-- keys: of the subscription
-- args: number of the subscription; rules
-- returns: "gone", or a list: waiting; in flight; dead; since when the queue is paused or "";
--       sent; done; retried; lost; withdrawn; µs since the oldest available message was sent
--       or fell due, or "-1"; the time; the first 100 paused keys; expired
-- cost: some twenty commands
local number, rules = unpack(ARGV)
-- includes: keys, rules, current, keyed
local meta = call('HMGET', META, 'paused')
local own = call('HMGET', TALLY, 'sent', 'done', 'retried', 'lost', 'withdrawn', 'expired')
local depth = call('ZCARD', DUE) + call('ZCARD', ALONE) - call('SCARD', STALE)
local oldest
for _, key in pairs(READY) do
  depth = depth + call('LLEN', key)
  local first = tonumber(call('LINDEX', key, 0) or nil)
  if first and (not oldest or first < oldest) then oldest = first end
end
local paused = {}
if rules.y then
  depth = call('ZCARD', WAIT) + (rules.o and 0 or depth)
  paused = call('ZRANGE', PAUSED, 0, 99)
  for _, key in ipairs({TURN, FRESH}) do -- of the next keys only
    local name = call('ZRANGE', key, 0, 0)[1]
    local first = name and waiting(name, 1)[1]
    first = first and tonumber(idOf(first))
    if first and (not oldest or first < oldest) then oldest = first end
  end
end
local due = nextDue()
if due and due <= now and (not oldest or due < oldest) then oldest = due end
return {
  text(depth), text(call('HLEN', RUN)), text(call('ZCARD', DEAD)), meta[1] or '',
  own[1] or '0', own[2] or '0', own[3] or '0', own[4] or '0', own[5] or '0',
  oldest and text(math.max(0, now - oldest)) or '-1', text(now), paused, own[6] or '0',
}
