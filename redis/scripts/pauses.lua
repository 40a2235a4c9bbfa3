local PAUSES = KEYS[#KEYS]
-- change stores or removes what PAUSES, a hash, has of a paused key, or of the queue under the name
-- '': its id, the time of its end in µs or '', since when it is paused, and the rest as JSON,
-- separated by blanks. It returns what to do, and what PAUSES had, or ''.
-- is: the id, the end and the JSON of a pause, or '' to resume; before: the time in µs until which it
-- may be stored; ended: '' or the id of a pause whose end is reached, which is resumed only if it is
-- still the same.
-- It says: 'same' if nothing is to change; 'changed' if it did, so that the caller changes what claims
-- read; 'late' after before; 'past' if the end has passed; 'early' if the pause that should have ended
-- has not, and 'other' if it is not there.
local function change(name, is, before, ended)
  local was = call('HGET', PAUSES, name) or ''
  local id, ends, since, rest = string.match(was, '^(%d+) (%d*) (%d+) (.*)$')
  if is == '' then
    if ended ~= '' then
      if id ~= ended then return 'other', was end
      if ends == '' or tonumber(ends) > now then return 'early', was end
    end
    return call('HDEL', PAUSES, name) == 1 and 'changed' or 'same', was
  end
  if now > tonumber(before) then return 'late', was end
  local nextId, nextEnds, nextRest = string.match(is, '^(%d+) (%d*) (.*)$')
  if nextEnds ~= '' and tonumber(nextEnds) <= now then return 'past', was end
  if id and ends == nextEnds and cjson.decode(rest).reason == cjson.decode(nextRest).reason then return 'same', was end
  call('HSET', PAUSES, name, nextId .. ' ' .. nextEnds .. ' ' .. (since or text(now)) .. ' ' .. nextRest)
  return 'changed', was
end
