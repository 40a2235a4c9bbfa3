package chaos

import (
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste/internal/history"
)

// times checks how long it took until things went on.
func (c *checker) times() {
	c.rescues()
	var handled []time.Duration
	for _, run := range c.calls {
		if run.ended == history.Handled {
			handled = append(handled, run.to)
		}
	}
	slices.Sort(handled)
	var sent []time.Duration
	for _, s := range c.list {
		if s.answer == history.Sent {
			sent = append(sent, s.to)
		}
	}
	slices.Sort(sent)
	for i := 1; i < len(handled); i++ {
		if handled[i] < c.calm {
			c.v.WorstGap = max(c.v.WorstGap, handled[i]-handled[i-1])
		}
	}
	for _, f := range c.faults {
		if n := natures[f.kind]; n != outage && n != crash || f.to == never || f.to > c.calm {
			continue
		}
		for what, times := range map[string][]time.Duration{"sent": sent, "handled": handled} {
			i, _ := slices.BinarySearch(times, f.to)
			next := min(c.calm, c.drained)
			if i < len(times) {
				next = times[i]
			}
			if next == never {
				continue // which is broken for other reasons
			}
			after := span{f.to, next}
			c.v.WorstFlow = max(c.v.WorstFlow, after.length())
			// Struck again before anything could flow, it counts from then on.
			if most := resume + c.pausedBut(f, after) + c.b.Slack; after.length() > most {
				c.broken(LateFlow, "nothing was %s for %s after the end of %q at %s", what, after.length(), f.kind, clock(f.to))
			}
		}
	}
}

// pausedBut is paused, without one fault.
func (c *checker) pausedBut(but *fault, s span) time.Duration {
	sum := c.paused(s)
	if but.touches(s) {
		sum -= but.within(s) + resume
	}
	return sum
}

// rescues checks when what dead workers held ran again.
func (c *checker) rescues() {
	for _, run := range c.calls {
		p := c.processes[run.process]
		if run.ended != "" || p == nil || p.how != Killed || run.queue == Once {
			continue
		}
		var next *call
		for _, other := range run.calls {
			if other.from > p.to && (next == nil || other.from < next.from) {
				next = other
			}
		}
		if next == nil {
			continue // lost, or its settlement went through
		}
		took := span{p.to, next.from}
		c.v.Rescued++
		c.v.WorstRescue = max(c.v.WorstRescue, took.length())
		// One that had it in between, and did not start it, lost it as well.
		if next.attempt > run.attempt+1 {
			continue
		}
		if most := p.lease + rescue + c.anew(took) + c.obstructed(took, run.queue) + c.b.Slack; took.length() > most {
			c.broken(LateRescue, "%s ran again %s after the death of %s, as %s; at most %s is allowed", run.message, took.length(), p.name, next, most)
		}
	}
}

// anew is after what time of a span a lease that began with it began anew for
// the last time: the database came back.
func (c *checker) anew(s span) (after time.Duration) {
	for _, f := range c.faults {
		if n := natures[f.kind]; (n == outage || n == crash) && f.touches(s) {
			after = max(after, f.to-s.from)
		}
	}
	return after
}

// obstructed is how long the machine or connections stalled: whoever was handed
// the message may have been unable to get or start it. Relays wait for their broker
// with all that they may have in hand.
func (c *checker) obstructed(s span, queue string) (sum time.Duration) {
	for _, stall := range c.stalls {
		sum += stall.within(s)
	}
	for _, f := range c.faults {
		if natures[f.kind] == silence && f.touches(s) {
			sum += f.within(s)
		}
		if ofBroker(f.kind) && queue == Relayed && f.touches(s) {
			sum += f.within(s) + resume
		}
	}
	return sum
}
