package chaos

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
)

// never is later than every time.
const never = time.Duration(math.MaxInt64 / 4) // so that it can be added to

// slack is how much earlier than the end of a call its settlement may be: a fault within that
// time may have come before the settlement.
const slack = 2 * time.Second

// span is a period with both its ends.
type span struct{ from, to time.Duration }

func (s span) touches(o span) bool   { return s.from <= o.to && o.from <= s.to }
func (s span) length() time.Duration { return s.to - s.from }

// within returns how much of s is inside o.
func (s span) within(o span) time.Duration {
	return max(0, min(s.to, o.to)-max(s.from, o.from))
}

// send is one transaction of a sender.
type send struct {
	token, queue, key, process string
	delay                      time.Duration
	span                       // from the intent to the answer; to is never without one
	answer                     history.Kind
	note                       string // of the answer
	ids                        []posthaste.MessageID
	count                      int // number of messages
}

// message is a message of a send for one subscription, with all its calls by time.
type message struct {
	*send
	part         int
	subscription string
	calls        []*call
	effects      int // rows that its handlers inserted, or mails or relayed messages that arrived
}

func (m *message) String() string {
	if m.subscription != "" {
		return fmt.Sprintf("%s.%d for %s", m.token, m.part, m.subscription)
	}
	return fmt.Sprintf("%s.%d", m.token, m.part)
}

// handled reports whether a call handled the message.
func (m *message) handled() bool {
	if m.queue == Effects || m.queue == Mails || m.queue == Relayed {
		return m.effects > 0
	}
	return slices.ContainsFunc(m.calls, func(c *call) bool { return c.ended == history.Handled })
}

// call is a run of a receiver's handler.
type call struct {
	*message
	process string
	id      posthaste.MessageID
	attempt int // 0 if unknown, because a mail does not contain it
	alone   bool
	span
	ended history.Kind // Handled, Failed, or "" if its process died before
}

func (c *call) String() string {
	return fmt.Sprintf("attempt %d at %s by %s (message %s of %s)", c.attempt, clock(c.from), c.process, c.message, c.queue)
}

// process is a process that the rig ran.
type process struct {
	name, role string
	span                     // to is never if it was still running at the end
	asked      time.Duration // to end gracefully; never if it was not
	lease      time.Duration
	holds      int
	how        string
	once       int // number of at-most-once messages, if it was handed any
	memory     []resident
}

// fault is a fault that the rig injected.
type fault struct {
	kind Fault
	whom string
	span
	struck  int  // number of processes, connections or other targets
	hit     int  // sends and calls in flight, if it struck a target
	crashed bool // the store crashed, which the kind alone does not determine
}

// nature returns what the fault can cause.
func (f *fault) nature() nature {
	if f.kind == DiskFull && !f.crashed {
		return outage // writes fail, and nothing else
	}
	return natures[f.kind]
}

// away reports whether the store was unavailable.
func (f *fault) away() bool { return f.nature() == outage || f.nature() == crash }

// account is the content of the histories, in order.
type account struct {
	sends     map[string]*send
	of        map[*send][]*message // the messages of each subscription, one subscription after the other
	list      []*send              // the same, by time
	calls     []*call
	processes map[string]*process
	faults    []*fault
	stalls    []span
	left      []history.Event
	damaged   []history.Event
	invented  []history.Event
	leftOut   []history.Event
	wanted    []Fault
	planned   time.Duration // planned duration of the run
	first     time.Time     // first tick of the schedule; zero without one
	last      time.Time     // last possible tick
	calm      time.Duration
	drained   time.Duration // never if it was not
	turns     int
	ring      bool // the engine has a ring
}

func (a *account) message(e history.Event) *message {
	s := a.sends[e.Token]
	if s == nil || e.Part < 0 || e.Part >= s.count {
		return nil
	}
	which := slices.Index(subscriptions(s.queue), e.Subscription)
	if which < 0 {
		return nil
	}
	return a.of[s][which*s.count+e.Part]
}

// concerns reports whether a fault strikes a process.
func (a *account) concerns(f *fault, process string) bool {
	if f.whom == "" || f.whom == process {
		return true
	}
	// A fault of the server also strikes its callers.
	whom, p := a.processes[f.whom], a.processes[process]
	return whom != nil && p != nil && whom.role == roleServer && (p.role == roleHTTPSender || p.role == roleHTTPReceiver)
}

// hits counts the sends and calls in flight for each fault that struck a target.
func (a *account) hits() {
	for _, f := range a.faults {
		if f.struck == 0 {
			continue
		}
		for _, c := range between(a.calls, f.span) {
			if c.touches(f.span) && a.concerns(f, c.process) && (only(f.kind) == "" || only(f.kind) == c.queue) {
				f.hit++
			}
		}
		for _, s := range between(a.list, f.span) {
			if s.touches(f.span) && a.concerns(f, s.process) && only(f.kind) == "" {
				f.hit += s.count
			}
		}
	}
}

// between returns those that may overlap a span, in order of their start. No call and no send
// takes longer than a few minutes.
func between[T interface{ begin() time.Duration }](all []T, s span) []T {
	const longest = 5 * time.Minute
	from, _ := slices.BinarySearchFunc(all, s.from-longest, func(t T, at time.Duration) int { return cmp.Compare(t.begin(), at) })
	to := len(all)
	if s.to != never {
		to, _ = slices.BinarySearchFunc(all, s.to+1, func(t T, at time.Duration) int { return cmp.Compare(t.begin(), at) })
	}
	return all[from:max(from, to)]
}

func (c *call) begin() time.Duration { return c.from }
func (s *send) begin() time.Duration { return s.from }

// paused returns how much of s the machine or the database was unavailable, plus the recovery
// time after each such period.
func (a *account) paused(s span) (sum time.Duration) {
	for _, p := range a.stalls {
		sum += p.within(s)
	}
	for _, f := range a.faults {
		if f.away() && f.touches(s) {
			sum += f.within(s) + resume
		}
	}
	return sum
}

// silences returns the periods in which a process could not reach the database. Adjacent ones
// are merged, because a heartbeat needs time in between. A worker's lease starts again with a
// restarted PostgreSQL, so for outages only the time until it is back counts.
func (a *account) silences(p *process) (merged []span) {
	var all []span
	for _, f := range a.faults {
		n := f.nature()
		switch {
		case n != silence && !f.away(), !a.concerns(f, p.name), !f.touches(p.span):
		case n != silence && slices.Contains(workerRoles, p.role) && !leasesRunOn(f.kind):
			all = append(all, span{f.to, f.to + resume})
		default:
			all = append(all, f.span)
		}
	}
	all = append(all, a.stalls...)
	slices.SortFunc(all, func(x, y span) int { return cmp.Compare(x.from, y.from) })
	for _, s := range all {
		if last := len(merged) - 1; last >= 0 && s.from <= merged[last].to+beat(p.lease)+time.Second {
			merged[last].to = max(merged[last].to, s.to)
		} else {
			merged = append(merged, s)
		}
	}
	return merged
}

// beat returns the interval of the heartbeats of a worker with a lease.
func beat(lease time.Duration) time.Duration { return lease * 3 / 10 }

// clock formats a time of a history.
func clock(at time.Duration) string { return fmt.Sprintf("%.3f", at.Seconds()) }
