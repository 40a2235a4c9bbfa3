-- The position of an iteration over a hash: TALLY has, by the iteration's name, a cursor, an
-- "@" and the server that the cursor is of. All callers share an iteration. Another server, or
-- the same one after a restart, has another order, and there the iteration starts over.
local server = string.match(call('INFO', 'server'), 'run_id:(%x+)')
local function resumed(walk)
  local cursor, of = string.match(call('HGET', TALLY, walk) or '', '^(%d+)@(%x+)$')
  return of == server and cursor or '0'
end

-- paused stores the cursor for the next call, and returns the reply that asks for one.
local function paused(walk, cursor)
  call('HSET', TALLY, walk, cursor .. '@' .. server)
  return 'more'
end
