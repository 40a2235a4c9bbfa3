-- Limits, packed: c is the maximum of messages in flight and r the rate of a queue; k and s
-- are the same for each key. A rate is l tokens in p µs, with a burst of b. Its state is one
-- time: when all its tokens are available again ("full").

-- per returns the µs between two tokens.
local function per(rate) return rate.p / rate.l end

-- since bounds full, so that a clock that was set back, or another rate, cannot leave more
-- tokens missing than the burst has.
local function since(rate, full)
  return math.max(now, math.min(full, now + rate.b * per(rate)))
end

-- tokens returns how many tokens are available.
local function tokens(rate, full)
  return math.floor(rate.b - (since(rate, full) - now) / per(rate) + 1e-6)
end

-- taken returns full after n more tokens were taken.
local function taken(rate, full, n) return since(rate, full) + n * per(rate) end

-- come returns when a rate without tokens has some again: a quarter of the burst, so that
-- workers do not wake up for each token.
local function come(rate, full)
  return math.ceil(since(rate, full) - (rate.b - math.max(1, math.floor(rate.b / 4))) * per(rate))
end

-- exactly formats a time that is not a whole number.
local function exactly(n) return string.format('%.17g', n) end

-- room returns how many of most messages the queue's limits allow. If they allow none, it
-- also returns when they allow some, or nil if that takes a settlement.
local function room(limits, full, most)
  if limits.c then most = math.min(most, limits.c - call('HLEN', RUN)) end
  if most > 0 and limits.r then
    most = math.min(most, tokens(limits.r, full))
    if most < 1 then return most, come(limits.r, full) end
  end
  return most
end

-- mute stops senders from ringing until a time, or with nil until a settlement, because
-- messages wait already.
local function mute(due) call('HSET', TALLY, 'mute', due and text(due) or '9e15') end
