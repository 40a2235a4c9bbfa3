package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste/internal/history"
)

// Bounds are the checker's parameters besides the histories.
type Bounds struct {
	// Slack is added to every bound of time, for busy machines.
	Slack time.Duration
	// Busy says that every process always has work, so that a process that does nothing hangs.
	Busy bool
}

// Check examines histories. It returns an error if they are invalid.
func Check(events []history.Event, b Bounds) (*Verdict, error) {
	a, err := read(events)
	if err != nil {
		return nil, err
	}
	v := &Verdict{account: a}
	c := &checker{a, v, b, map[string][]span{}}
	c.deliveries()
	c.dedupes()
	c.ticks()
	c.limits()
	c.atMostOnce()
	c.refusals()
	c.keys()
	c.ends()
	c.times()
	c.memory()
	return v, nil
}

type checker struct {
	*account
	v        *Verdict
	b        Bounds
	silenced map[string][]span // of processes, as requested so far
}

func (c *checker) broken(rule Rule, format string, args ...any) {
	c.v.Violations = append(c.v.Violations, Violation{rule, fmt.Sprintf(format, args...)})
}

// deliveries checks each message against its sender's records.
func (c *checker) deliveries() {
	again := map[blow]int{} // calls run again because of a blow to their process
	for _, s := range c.list {
		handled := 0
		for _, m := range c.of[s] {
			if m.handled() {
				handled++
				if m.subscription == "" {
					c.v.Handled++
				}
			}
			c.message(m)
			c.again(m, again)
		}
		c.v.Messages += s.count
		switch s.answer {
		case Ticked:
		case history.Sent:
			c.v.Acknowledged += s.count
		case Refused, RolledBack:
			c.v.NotSent += s.count
		default:
			c.v.Unsure += s.count
			if handled > 0 && handled < len(c.of[s]) && s.queue != Once {
				c.broken(Half, "of %s, whose sender got no answer, %d of %d messages were handled", s.token, handled, len(c.of[s]))
			}
		}
	}
	for _, e := range c.invented {
		c.broken(Invented, "%s got %s.%d as message %s, which was not sent", e.Process, e.Token, e.Part, e.ID)
	}
	for _, e := range c.damaged {
		c.broken(Altered, "the payload of message %s, as %s got it: %s", e.ID, e.Process, e.Note)
	}
}

func (c *checker) message(m *message) {
	called := len(m.calls) > 0 || m.effects > 0
	switch {
	case called && (m.answer == Refused || m.answer == RolledBack):
		c.broken(Ghost, "%s of %s was %s and handed out", m, m.queue, m.answer)
	case m.answer == history.Sent && m.queue != Once && m.queue != Deduped && !m.handled():
		c.v.Lost++
		c.broken(Lost, "%s of %s, message %s, sent at %s: it was not handled, after %d calls", m, m.queue, m.ids[m.part], clock(m.to), len(m.calls))
	}
	if m.queue == Effects && m.effects > 1 {
		c.broken(NotOnce, "%s happened %d times", m, m.effects)
	}
	if m.queue == Mails || m.queue == Relayed {
		confirmed := 0
		for _, call := range m.calls {
			if call.ended == history.Handled {
				confirmed++
			}
		}
		if m.effects < confirmed || m.effects > len(m.calls) {
			c.broken(NotMailed, "%s of %s arrived %d times, in %d calls of which %d were answered with success", m, m.queue, m.effects, len(m.calls), confirmed)
		}
	}
	for _, call := range m.calls {
		if m.queue == Ticks && call.id != m.calls[0].id {
			c.broken(NotOne, "%s came as message %s, and as %s before", call, call.id, m.calls[0].id)
		} else if m.answer == history.Sent && call.id != m.ids[m.part] || call.id != m.calls[0].id {
			c.broken(Mistaken, "%s came as message %s", call, call.id)
		}
		if call.from < m.from+m.delay-skew {
			c.broken(Early, "%s, which was sent at %s, to be held back for %s", call, clock(m.from), m.delay)
		}
	}
}

// again checks messages that ran more than once: each further run needs an explanation, and
// must be a further attempt.
func (c *checker) again(m *message, counted map[blow]int) {
	runs := slices.Clone(m.calls)
	slices.SortStableFunc(runs, func(x, y *call) int { return cmp.Or(cmp.Compare(x.attempt, y.attempt), cmp.Compare(x.from, y.from)) })
	done := 0
	for i, run := range runs {
		if run.ended == history.Handled {
			done++
		}
		if i == 0 {
			if run.attempt > 1 && !c.anyFault(span{m.from - time.Minute, run.from}, m.queue) {
				c.broken(Twice, "%s is the first there was, and nothing explains what became of those before", run)
			}
			continue
		}
		before := runs[i-1]
		if m.queue == Once {
			c.broken(MoreThan, "%s, after %s", run, before)
			continue
		}
		if run.attempt == before.attempt && run.attempt > 0 {
			// Deliveries that were handed out but not flushed do not exist after a crash.
			f := c.crashed(before)
			if f == nil && before.process == run.process {
				f = c.crashedClaim(before)
			}
			if f == nil {
				c.broken(Attempts, "%s, after %s", run, before)
			} else {
				c.count(before, blow{"", f.from}, counted)
			}
			continue
		}
		if before.ended == history.Failed {
			continue
		}
		f, cause := c.explained(before, run)
		if !cause && run.attempt == 0 {
			// The order in time may differ from that of the attempts: a stopped process
			// resumes.
			f, cause = c.explained(run, before)
		}
		if !cause {
			c.broken(Twice, "%s, after %s, which ended at %s", run, before, clock(before.to))
			continue
		}
		c.count(before, f, counted)
	}
	if done > 1 {
		c.v.Twice++
	}
}

// blow is a fault of a process at a time; the name is empty if it struck all.
type blow struct {
	process string
	at      time.Duration
}

// explained returns the reason why a message ran again.
func (c *checker) explained(before, again *call) (blow, bool) {
	inFlight := span{before.from - slack, before.to + slack}
	if p := c.processes[before.process]; p != nil {
		if p.how == Killed && (span{p.to, p.to}).touches(inFlight) && p.to <= again.from {
			return blow{p.name, p.to}, true
		}
		if s := c.longSilence(before, inFlight); s != nil {
			return blow{p.name, s.from}, true
		}
	}
	if f := c.crashed(before); f != nil {
		return blow{"", f.from}, true
	}
	return blow{}, false
}

// count counts a call that ran again because of a blow to its process, or to the database, and
// was not running then.
func (c *checker) count(run *call, f blow, counted map[blow]int) {
	p := c.processes[run.process]
	if p == nil {
		return
	}
	settling := run.ended == history.Handled && run.to <= f.at
	if f.process == "" {
		// A crash ends no lease: a process runs its prefetched messages, and settles them
		// later.
		if !settling && run.from <= f.at || c.backedUp(p, f.at) {
			return
		}
	} else if !settling {
		return // its lease covers prefetched messages that it ran after that
	}
	most := p.holds
	if c.b.Slack > 0 {
		most *= 4 // on busy machines, settling takes that much longer
	}
	struck := blow{p.name, f.at}
	counted[struck]++
	if n := counted[struck]; n == most+1 {
		c.broken(TooMany, "more than %d messages that %s had handled before %s, or started after it, ran again", n-1, p.name, clock(f.at))
	}
}

// backedUp reports whether a process may have had more unsettled messages than usual, because
// it could not reach the database well.
func (c *checker) backedUp(p *process, at time.Duration) bool {
	return slices.ContainsFunc(c.faults, func(f *fault) bool {
		return f.nature() == silence && c.concerns(f, p.name) && f.touches(span{at - slack, at + slack})
	})
}

// silencesOf returns the silences of a process.
func (c *checker) silencesOf(p *process) []span {
	all, known := c.silenced[p.name]
	if !known {
		all = c.silences(p)
		c.silenced[p.name] = all
	}
	return all
}

// longSilence returns the silence during a call because of which its process lost its lease.
func (c *checker) longSilence(run *call, inFlight span) *span {
	p := c.processes[run.process]
	all := c.silencesOf(p)
	for i, s := range all {
		if s.touches(inFlight) && s.length() >= p.lease-beat(p.lease)-time.Second {
			return &all[i]
		}
	}
	return nil
}

// crashed returns the crash of the database while a call was in flight.
func (c *checker) crashed(run *call) *fault { return c.crashIn(span{run.from - slack, run.to + slack}) }

// crashedClaim returns the crash of the database that may have lost the claim of a call before it
// started. A process holds a message for a while, for example while its broker is away.
func (c *checker) crashedClaim(run *call) *fault {
	return c.crashIn(span{max(run.message.from, run.from-time.Minute), run.from})
}

func (c *checker) crashIn(s span) *fault {
	for _, f := range c.faults {
		if f.nature() == crash && f.touches(s) {
			return f
		}
	}
	return nil
}

// anyFault reports whether any fault may have cost an attempt at a message of a queue.
func (c *checker) anyFault(s span, queue string) bool {
	return slices.ContainsFunc(c.stalls, s.touches) || slices.ContainsFunc(c.faults, func(f *fault) bool {
		return (!unnoticed(f.kind) || only(f.kind) == queue) && f.touches(s)
	})
}

// keys checks that the messages of each key of an ordered queue ran one after the other, in
// the order of their sends. A sender stops using a key after a lost answer, so that its sends
// are in order.
func (c *checker) keys() {
	keys := map[string][]*message{}
	for _, s := range c.list {
		if s.queue == Ordered && s.answer != Refused && s.answer != RolledBack {
			keys[s.key] = append(keys[s.key], c.of[s]...)
		}
	}
	for _, messages := range keys {
		var runs []*call
		var before *message
		for _, m := range messages {
			if len(m.calls) == 0 {
				continue // which is possible if there was no answer
			}
			first := m.calls[0]
			if before != nil {
				ready := never // time at which the previous one was first handled
				for _, run := range before.calls {
					if run.ended == history.Handled {
						ready = min(ready, run.to)
					}
				}
				if first.from < ready {
					c.broken(Order, "%s, of key %s, before %s was handled", first, m.key, before)
				}
			}
			before = m
			runs = append(runs, m.calls...)
		}
		slices.SortFunc(runs, func(x, y *call) int { return cmp.Compare(x.from, y.from) })
		for i := 1; i < len(runs); i++ {
			x, y := runs[i-1], runs[i]
			if y.from >= x.to {
				continue
			}
			if _, ok := c.explained(x, y); !ok {
				if _, ok := c.explained(y, x); !ok {
					c.broken(Together, "%s while %s was running, which ended at %s", y, x, clock(x.to))
				}
			}
		}
	}
}

// checkStrikes checks that each kind of fault took effect, and hit messages in flight. In a short
// run each strikes about once, and may find nothing in flight; then one of them must have hit.
func (c *checker) checkStrikes() {
	struck, hit, hits := map[Fault]int{}, map[Fault]int{}, 0
	for _, f := range c.faults {
		struck[f.kind] += f.struck
		hit[f.kind] += f.hit
		hits += f.hit
	}
	for _, kind := range c.wanted {
		switch {
		case struck[kind] == 0:
			c.broken(StruckNone, "%s: it took effect not once", kind)
		case hit[kind] == 0 && (hits == 0 || c.planned >= allKinds):
			c.broken(StruckNone, "%s: nothing was in flight", kind)
		}
	}
}

// ends checks the state at the end of the run.
func (c *checker) ends() {
	for _, e := range c.left {
		c.broken(Behind, "%d %s %s", e.Count, e.Note, e.Queue)
	}
	for _, p := range c.processes {
		if p.how == Failed {
			c.broken(Quit, "%s at %s", p.name, clock(p.to))
		}
	}
	if c.drained == never {
		c.broken(NotDrained, "something still waited when the time was over")
	}
	if c.v.Acknowledged == 0 || c.v.Handled == 0 {
		c.broken(NothingDone, "%d messages were sent and %d handled", c.v.Acknowledged, c.v.Handled)
	}
	c.checkStrikes()
	if c.planned < longRun {
		return
	}
	for _, e := range c.leftOut {
		if e.Count == 0 {
			c.broken(NotTried, "%s: %s; if that is as it should be, say so with -without", e.Note, e.Key)
		}
	}
	if c.ring && c.turns == 0 {
		c.broken(Stands, "the ring did not go on once")
	}
}

// CheckDir examines the histories in a directory.
func CheckDir(dir string) (*Verdict, error) {
	events, err := history.Read(dir)
	if err != nil {
		return nil, err
	}
	return Check(events, Bounds{Busy: true})
}
