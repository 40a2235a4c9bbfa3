-- Limits: packed c how many may be handed out and not settled, r the rate; of each
-- key k and s. A rate is l tokens in p µs, kept up to b. Of a rate only one time is
-- stored: when its tokens are all there again.

-- per is the µs in which one token comes.
local function per(rate) return rate.p / rate.l end

-- since bounds that time: a clock that was set back, or another rate, cannot leave
-- more missing than there are.
local function since(rate, full)
  return math.max(now, math.min(full, now + rate.b * per(rate)))
end

-- tokens is how many a rate has.
local function tokens(rate, full)
  return math.floor(rate.b - (since(rate, full) - now) / per(rate) + 1e-6)
end

-- taken is when all are there again, after n more were taken.
local function taken(rate, full, n) return since(rate, full) + n * per(rate) end

-- come is when a rate that has none has some: of a large burst a part at once, so
-- that nobody wakes up for each.
local function come(rate, full)
  return math.ceil(since(rate, full) - (rate.b - math.max(1, math.floor(rate.b / 4))) * per(rate))
end

-- exactly makes text of a time that is no whole number.
local function exactly(n) return string.format('%.17g', n) end

-- room is how many of most the queue's limits let through, and when some more if
-- that is none (nil: when something is settled).
local function room(limits, full, most)
  if limits.c then most = math.min(most, limits.c - call('HLEN', RUN)) end
  if most > 0 and limits.r then
    most = math.min(most, tokens(limits.r, full))
    if most < 1 then return most, come(limits.r, full) end
  end
  return most
end

-- mute lets senders ring nobody until a time (nil: until something is settled), for
-- something waits already.
local function mute(due) call('HSET', TALLY, 'mute', due and text(due) or '9e15') end
