-- The position of an iteration over a hash: TALLY has, by the iteration's name, a cursor, an
-- "@" and the server that the cursor is of. All callers share an iteration. Another server, or
-- the same one after a restart, has another order, and there the iteration starts over.
local server = string.match(call('INFO', 'server'), 'run_id:(%x+)')

-- iteration_cursor returns the cursor at which to go on.
local function iteration_cursor(name)
  local cursor, of = string.match(call('HGET', TALLY, name) or '', '^(%d+)@(%x+)$')
  return of == server and cursor or '0'
end

-- pause_iteration stores the cursor for the next call, and returns the reply that asks for one.
local function pause_iteration(name, cursor)
  call('HSET', TALLY, name, cursor .. '@' .. server)
  return 'more'
end
