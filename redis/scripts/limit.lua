#!lua flags=allow-oom
-- Gives a queue these limits.
-- keys: of the queue
-- args: 1 the queue's number; 2 its rules (rules.lua); 3 its limits (limits.lua), or ""
-- returns: "gone" or "ok"
-- cost: six commands; of a queue that looks at keys as many more as keys wait for
--       a rate or are in flight
-- includes: keys, rules, current, keyed
if ARGV[3] == '' then
  call('HDEL', META, 'limits')
  call('HDEL', TALLY, 'full', 'mute')
else
  call('HSET', META, 'limits', ARGV[3])
  call('HDEL', TALLY, 'mute')
end
if rules.y then -- what waits by the old limits is looked at anew
  if call('EXISTS', AGAIN) == 1 then
    call('ZUNIONSTORE', AGAIN, 2, AGAIN, LATER)
    call('UNLINK', LATER)
  elseif call('EXISTS', LATER) == 1 then
    call('RENAME', LATER, AGAIN)
  end
  line(AGAIN, call('HKEYS', HELD))
end
ring()
return 'ok'
