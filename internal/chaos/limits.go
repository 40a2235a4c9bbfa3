package chaos

import (
	"cmp"
	"slices"
	"time"
)

// The limits of Limited.
const (
	limit      = 6  // messages handed out and not settled
	limitRate  = 80 // messages handed out per second
	limitBurst = 8  // at once, after a pause
)

// limits checks that the queue with limits never exceeded its concurrency and its rate.
func (c *checker) limits() {
	var runs []*call
	for _, run := range c.calls {
		if run.queue == Limited {
			runs = append(runs, run)
		}
	}
	slices.SortFunc(runs, func(x, y *call) int { return cmp.Compare(x.from, y.from) })
	c.concurrent(runs)
	c.rate(runs)
}

// concurrent checks how many ran at the same time.
func (c *checker) concurrent(runs []*call) {
	var held []*call // and for how long
	until := map[*call]time.Duration{}
	for _, run := range runs {
		held = slices.DeleteFunc(held, func(other *call) bool { return until[other] <= run.from })
		if until[run] = c.holdsPlace(run); until[run] > run.from {
			held = append(held, run)
		}
		c.v.Concurrent = max(c.v.Concurrent, len(held))
		if len(held) > limit {
			c.broken(OverLimit, "%s is one of %d at the same time, and at most %d are allowed; the first of them is %s", run, len(held), limit, held[0])
		}
	}
}

// holdsPlace returns until when a call certainly counts against the limit: until its process
// may have lost the lease, or the database the claim.
func (c *checker) holdsPlace(run *call) time.Duration {
	end := run.to
	if p := c.processes[run.process]; p != nil {
		inFlight := span{run.from - slack, run.to + slack}
		for _, s := range c.silencesOf(p) {
			if lost := p.lease - beat(p.lease) - time.Second; s.touches(inFlight) && s.length() >= lost {
				end = min(end, s.from+lost)
			}
		}
	}
	if f := c.crashed(run); f != nil {
		end = min(end, f.from)
	}
	return max(run.from, end)
}

// rate checks how many started in any period: tokens come evenly, and some are kept. A message
// starts a little after it was handed out, by at most the number in flight.
func (c *checker) rate(runs []*call) {
	const most = limitBurst + 2*limit // of tokens
	var used float64                  // of those
	var last time.Duration
	for _, run := range runs {
		if c.holdsPlace(run) == run.from {
			continue // it was handed out long ago
		}
		if slices.ContainsFunc(c.faults, func(f *fault) bool { return f.nature() == crash && f.touches(span{last, run.from}) }) {
			used = 0 // the tokens of the last claims are unknown
		}
		used = max(0, used-(run.from-last).Seconds()*limitRate*1.05) + 1
		last = run.from
		if used > most {
			c.broken(OverRate, "%s is one too many: at most %d a second are allowed, and %d at once", run, limitRate, limitBurst)
			used = 0 // and report each period once
		}
	}
}
