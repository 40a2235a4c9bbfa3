-- Notes of a delivery that runs: by its handler (note.lua) k a checkpoint, p progress, x its text,
-- g log lines; and q, when its message was cancelled (withdraw.lua).
local logMost = 65536

-- logTail returns the last whole lines of a log that fit into a number of bytes.
local function logTail(log, bytes)
  local over = #log - math.max(bytes, 0)
  if over <= 0 then return log end
  local at = string.find(log, '\n', over, true)
  return at and string.sub(log, at + 1) or ''
end

-- stillHeld returns those of the cancelled deliveries in the tally that have not ended, and for
-- each the tag of its holder.
local function stillHeld(cancels)
  local all, tags = {}, {}
  if not cancels then return all, tags end
  local deliveries = unpacked(cancels)
  for i, held in ipairs(got(RUN, deliveries)) do
    if held then
      all[#all + 1] = deliveries[i]
      tags[#tags + 1] = string.match(held, '^[^/%z]+')
    end
  end
  return all, tags
end

-- told adds an attempt to a story. It gets the checkpoint of the attempt before it, unless it
-- has its own: only the newest has one. A released attempt replaces an earlier release of the
-- same attempt. Of all logs the newest logMost bytes stay.
local function told(story, attempt)
  local last = story[#story]
  if last then
    attempt.k, last.k = attempt.k or last.k, nil
    if last.o == 'released' and attempt.o == 'released' and last.a == attempt.a then
      if last.g then attempt.g = last.g .. (attempt.g or '') end
      story[#story] = nil
    end
  end
  story[#story + 1] = attempt
  if attempt.g then
    local room = logMost
    for i = #story, 1, -1 do
      local log = story[i].g
      if log then
        log = logTail(log, room)
        room = room - #log
        story[i].g = log ~= '' and log or nil
      end
    end
  end
  return story
end
