-- Where a walk over a hash has come to: TALLY has, by the walk's name, a cursor, an "@" and
-- the server that gave it, so that any number of callers share one walk. Another server,
-- or the same after a restart, has the hash in another order: there the walk begins anew.
local server = string.match(call('INFO', 'server'), 'run_id:(%x+)')
local function resumed(walk)
  local cursor, of = string.match(call('HGET', TALLY, walk) or '', '^(%d+)@(%x+)$')
  return of == server and cursor or '0'
end

-- paused says that a walk goes on at a cursor with the next call, and returns what says
-- so to the caller.
local function paused(walk, cursor)
  call('HSET', TALLY, walk, cursor .. '@' .. server)
  return 'more'
end
