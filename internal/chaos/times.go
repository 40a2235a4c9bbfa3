package chaos

import (
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste/internal/history"
)

// times checks how long it took until messages flowed again.
func (c *checker) times() {
	c.rescues()
	c.flows()
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
		if !f.away() || f.to == never || f.to > c.calm {
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
			// If it is struck again before messages could flow, the time counts from then on.
			if most := resume + c.pausedBut(f, after) + c.b.Slack; after.length() > most {
				c.broken(LateFlow, "nothing was %s for %s after the end of %q at %s", what, after.length(), f.kind, clock(f.to))
			}
		}
	}
}

// flows checks that each queue and each process resumed: within a while after the database was
// back, and for a process, at any time. If all processes always have work, one that does
// nothing hangs.
func (c *checker) flows() {
	sent, handled := map[string][]time.Duration{}, map[string][]time.Duration{} // by queue
	did := map[string][]time.Duration{}                                         // by process
	for _, s := range c.list {
		if s.answer == history.Sent {
			sent[s.queue] = append(sent[s.queue], s.to)
			did[s.process] = append(did[s.process], s.to)
		}
	}
	for _, run := range c.calls {
		did[run.process] = append(did[run.process], run.from)
		if run.ended == history.Handled {
			handled[run.queue] = append(handled[run.queue], run.to)
			did[run.process] = append(did[run.process], run.to)
		}
	}
	for _, all := range []map[string][]time.Duration{sent, handled, did} {
		for _, times := range all {
			slices.Sort(times)
		}
	}
	end := min(c.calm, c.drained)
	if end == never {
		return // which is broken for other reasons
	}
	for _, f := range c.faults {
		if !f.away() || f.to > end {
			continue
		}
		for queue := range sent {
			// There is work from this time on.
			after := span{max(f.to, next(sent[queue], f.to, end)), next(handled[queue], f.to, end)}
			if after.length() > resume+c.b.Slack && after.length() > resume+c.pausedBut(f, after)+c.obstructed(after, queue)+c.b.Slack {
				c.broken(LateFlow, "nothing of %s was handled for %s, from %s on, after the end of %q at %s", queue, after.length(), clock(after.from), f.kind, clock(f.to))
			}
		}
	}
	if c.b.Busy {
		for _, p := range c.processes {
			if p.role != roleServer { // its callers record it
				c.busy(p, did[p.name], end)
			}
		}
	}
}

// busy checks when a process did anything, until the end of sending.
func (c *checker) busy(p *process, did []time.Duration, end time.Duration) {
	end = min(end, p.to, p.asked)
	most := resume
	switch p.role {
	case roleSQLReceiver, roleHTTPReceiver:
		most *= 3 // workers are faster, and leave them little
	case roleMailWorker, roleRelay:
		most *= 3 // each reads one queue, and the other may be faster
	}
	for _, f := range c.faults {
		if !f.away() || f.to > end || f.to < p.from {
			continue
		}
		after := span{f.to, next(did, f.to, end)}
		if after.length() > most+c.b.Slack && after.length() > most+c.pausedBut(f, after)+c.disturbance(p, after)+c.b.Slack {
			c.broken(LateFlow, "%s did nothing for %s after the end of %q at %s", p.name, after.length(), f.kind, clock(f.to))
		}
	}
	for at := p.from; at < end; {
		idle := span{at, next(did, at+1, end)}
		// It may also have to start.
		if idle.length() > 2*most+c.b.Slack && idle.length() > 2*most+c.paused(idle)+c.disturbance(p, idle)+c.b.Slack {
			c.broken(Hung, "%s did nothing for %s from %s on", p.name, idle.length(), clock(at))
		}
		at = idle.to
	}
}

// next returns the first of times after a time, or the end.
func next(times []time.Duration, from, end time.Duration) time.Duration {
	if i, _ := slices.BinarySearch(times, from); i < len(times) {
		return min(times[i], end)
	}
	return end
}

// disturbance returns how long faults struck only this process, or its target, plus the
// recovery time after each of them. Faults shortly before the span count, too.
func (c *checker) disturbance(p *process, s span) (sum time.Duration) {
	for _, f := range c.faults {
		alone := f.whom != "" && c.concerns(f, p.name) && f.kind != Clock || only(f.kind) != "" && only(f.kind) == needed[p.role]
		if alone && f.touches(span{s.from - resume, s.to}) {
			sum += f.within(s) + resume
		}
	}
	return sum
}

// pausedBut is paused without one fault.
func (c *checker) pausedBut(but *fault, s span) time.Duration {
	sum := c.paused(s)
	if but.touches(s) {
		sum -= but.within(s) + resume
	}
	return sum
}

// rescues checks when the messages of dead workers ran again.
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
			continue // lost, or its settlement succeeded
		}
		took := span{p.to, next.from}
		c.v.Rescued++
		c.v.WorstRescue = max(c.v.WorstRescue, took.length())
		// A worker that held it in between, and did not start it, lost it as well.
		if next.attempt > run.attempt+1 || next.attempt == 0 && c.anotherDied(p, took) {
			continue
		}
		most := p.lease + rescue + c.renewed(took) + c.obstructed(took, run.queue) + c.b.Slack
		if took.length() > most && took.length() > most+c.behind(run.queue, next.from) {
			c.broken(LateRescue, "%s ran again %s after the death of %s, as %s; at most %s is allowed", run.message, took.length(), p.name, next, most)
		}
	}
}

// behind returns the median time that messages of a queue had waited that started for the
// first time shortly before a time: a rescued message has to wait for a handler like them. It
// is limited to the bound for a database's return.
func (c *checker) behind(queue string, at time.Duration) time.Duration {
	var waits []time.Duration
	for _, run := range c.calls {
		if run.queue == queue && run.attempt == 1 && run.answer == history.Sent && run.from > at-rescue && run.from < at {
			waits = append(waits, run.from-run.send.to)
		}
	}
	if len(waits) == 0 {
		return 0
	}
	slices.Sort(waits)
	return min(waits[len(waits)/2], resume)
}

// anotherDied reports whether another process of the same role was killed or silenced.
func (c *checker) anotherDied(p *process, s span) bool {
	for _, f := range c.faults {
		if o := c.processes[f.whom]; o != nil && o != p && o.role == p.role && f.touches(s) && (f.nature() == death || f.nature() == silence) {
			return true
		}
	}
	return false
}

// renewed returns after how much of a span a lease that started with it was last renewed because
// the database came back.
func (c *checker) renewed(s span) (after time.Duration) {
	for _, f := range c.faults {
		if f.away() && f.touches(s) {
			after = max(after, f.to-s.from)
		}
	}
	return after
}

// obstructed returns how long the machine or connections stalled, so that a process that was
// handed the message may have been unable to get or start it. Relays wait for their broker
// with all messages that they may hold.
func (c *checker) obstructed(s span, queue string) (sum time.Duration) {
	for _, stall := range c.stalls {
		sum += stall.within(s)
	}
	for _, f := range c.faults {
		if natures[f.kind] == silence && f.touches(s) {
			sum += f.within(s)
		}
		if only(f.kind) == queue && f.touches(s) {
			sum += f.within(s) + resume
		}
		// A process that holds all places of a limit keeps them until it is rescued.
		if p := c.processes[f.whom]; queue == Limited && p != nil && receives(p.role) && (f.nature() == death || f.nature() == silence) && f.touches(span{s.from - p.lease - rescue, s.to}) {
			sum += p.lease + rescue
		}
	}
	return sum
}
