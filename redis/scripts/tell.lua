#!lua flags=no-writes
-- Tells all that is known of messages.
-- keys: of the queue
-- args: 1 the queue's number; then the messages
-- returns: "gone", or per message five: "1" if it is known, content or "", state or "",
--       µs at which it is due or "", and, where it is handed out, when and to whom, packed
-- cost: some six commands per message
-- includes: keys
if call('HGET', META, 'no') ~= ARGV[1] then return 'gone' end
local all = {}
for i = 2, #ARGV do
  local id = ARGV[i]
  local content, st = call('HGET', MSG, id), call('HGET', ST, id)
  local due, running = '', ''
  if content then
    local member = string.sub(content, 1, 1) .. ':' .. id
    due = call('ZSCORE', DUE, member) or call('ZSCORE', ALONE, member) or ''
  end
  local held = call('HGET', RUN, st and unpacked(st).d or id)
  if held then
    local tag = string.match(held, '^[^/]+')
    local claim = call('HGET', CLAIM, tag)
    running = pack({
      t = claim and unpacked(claim).t or tonumber(string.sub(tag, 2)),
      w = call('HGET', NAMES, string.match(tag, '^[^:]+')) or '',
    })
  end
  all[#all + 1] = (content or st) and '1' or ''
  all[#all + 1] = content or ''
  all[#all + 1] = st or ''
  all[#all + 1] = due == '' and '' or text(tonumber(due))
  all[#all + 1] = running
end
return all
