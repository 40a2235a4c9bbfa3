-- Where a walk over a hash goes on: a cursor, an "@" and the server that gave it.
-- Another one, or the same after a restart, has the hash in another order: there the
-- walk begins anew.
local server = string.match(call('INFO', 'server'), 'run_id:(%x+)')
local function resumed(where)
  local cursor, of = string.match(where, '^(%d+)@(%x+)$')
  return of == server and cursor or '0'
end
