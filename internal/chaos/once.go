package chaos

import (
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste/internal/history"
)

// bearing is the number of at-most-once messages that a fault may have lost: those in flight
// between the store and one worker.
type bearing struct {
	span        // time of the fault
	answers int // messages of the one claim whose answer may have been lost
	held    int // handed to the worker, which died before it started them
}

// atMostOnce checks that an at-most-once queue lost only messages in flight during a fault: in
// a claim whose answer did not arrive, or held by a worker that died.
func (c *checker) atMostOnce() {
	var lost []*message
	var starts []handing
	for _, s := range c.list {
		if s.queue != Once {
			continue
		}
		for _, m := range c.of[s] {
			switch {
			case len(m.calls) > 0:
				starts = append(starts, handing{m.from, m.calls[0].from})
			case s.answer == history.Sent:
				lost = append(lost, m)
			}
		}
	}
	c.v.LostOnce = len(lost)
	if len(lost) == 0 {
		return
	}
	overtaken := soonest(starts)
	bearings := c.bearings()
	for _, m := range lost {
		// It was handed out before this time, because a message that was sent later was handed
		// out and started then.
		latest := overtaken(m.to)
		if latest != never {
			latest += slack
		}
		if !bear(bearings, m, latest) {
			c.broken(TooMany, "%s of %s, message %s, which goes out at most once, was sent at %s and lost, but no fault explains it: fewer messages were in flight than were lost",
				m, m.queue, m.ids[m.part], clock(m.to))
		}
	}
}

// bear finds the fault that lost a message, and reduces its number.
func bear(bearings []*bearing, m *message, latest time.Duration) bool {
	for _, b := range bearings {
		// The store may still work on a claim after its caller has given up.
		if b.answers > 0 && b.from <= latest && m.from <= b.to+slack {
			b.answers--
			return true
		}
	}
	for _, b := range bearings {
		if b.held > 0 && m.from <= b.to {
			b.held--
			return true
		}
	}
	return false
}

// bearings returns those of all faults, by time. A worker has one claim of a queue in flight
// at a time.
func (c *checker) bearings() (all []*bearing) {
	for _, p := range c.processes {
		if p.role != roleWorker {
			continue
		}
		var struck []span
		for _, f := range c.faults {
			if !unnoticed(f.kind) && c.concerns(f, p.name) && p.touches(f.span) {
				struck = append(struck, f.span)
			}
		}
		for _, s := range c.stalls {
			if p.touches(s) {
				struck = append(struck, s)
			}
		}
		for _, s := range struck {
			all = append(all, &bearing{span: span{s.from, min(s.to, p.to)}, answers: p.holds})
		}
		if p.how == Killed {
			all = append(all, &bearing{span: span{p.to, p.to}, held: c.held(p)})
		}
	}
	slices.SortFunc(all, func(x, y *bearing) int { return int(x.from - y.from) })
	return all
}

// held returns how many at-most-once messages a worker had been handed when it died, and had
// not started. The last ones handed to it may not be recorded.
func (c *checker) held(p *process) (n int) {
	n = p.once
	for _, run := range c.calls {
		if run.queue == Once && run.process == p.name {
			n--
		}
	}
	return max(0, n)
}

// handing is when a message was sent, at the earliest, and when it started.
type handing struct{ sent, started time.Duration }

// soonest returns a function that returns when the first message that was sent after a time
// started, or never.
func soonest(all []handing) func(after time.Duration) time.Duration {
	slices.SortFunc(all, func(x, y handing) int { return int(x.sent - y.sent) })
	first := make([]time.Duration, len(all)+1) // of those from there on
	first[len(all)] = never
	for i := len(all) - 1; i >= 0; i-- {
		first[i] = min(first[i+1], all[i].started)
	}
	return func(after time.Duration) time.Duration {
		i, _ := slices.BinarySearchFunc(all, after, func(h handing, at time.Duration) int { return int(h.sent - at) })
		return first[i]
	}
}
