package chaos

import (
	"fmt"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
)

// script writes a history by hand. Times are those of its own clock.
type script struct {
	events []history.Event
	faults int
}

// at adds an event at a millisecond.
func (s *script) at(ms int, e history.Event) {
	e.At = time.Duration(ms) * time.Millisecond
	s.events = append(s.events, e)
}

func (s *script) born(ms int, role string, names ...string) {
	for _, name := range names {
		s.at(ms, history.Event{Kind: Born, Whom: name, Note: role, Took: 10 * time.Second, Count: 4})
	}
}

// sends sends a token of n messages, with the answer 5 ms later.
func (s *script) sends(ms int, token, queue string, n int, answer history.Kind) {
	s.at(ms, history.Event{Kind: Intent, Process: "s", Token: token, Queue: queue, Key: "k", Count: n})
	e := history.Event{Kind: answer, Process: "s", Token: token}
	if answer == history.Sent {
		for i := range n {
			e.IDs = append(e.IDs, s.ids(token)+posthaste.MessageID(i))
		}
	}
	if answer != "" {
		s.at(ms+5, e)
	}
}

// ids returns the first id of a token.
func (s *script) ids(token string) (id posthaste.MessageID) {
	for _, c := range token {
		id = id*31 + posthaste.MessageID(c)
	}
	return id * 100
}

// dedupes sends a message under a dedupe key, with the answer 5 ms later: the id in the answer
// is that of told.
func (s *script) dedupes(ms int, token, told, key string) {
	s.sends(ms, token, Deduped, 1, history.Sent)
	n := len(s.events)
	s.events[n-2].Key, s.events[n-1].IDs[0] = key, s.ids(told)
}

// tick is a tick of the schedule, n seconds after its first one, which is handled immediately
// as the given message.
func (s *script) tick(ms, n int, message string) {
	token := tickPrefix + firstTick.Add(time.Duration(n)*everyTick).Format(time.RFC3339)
	s.runs(ms, 5, "w1", token, 0, 1, history.Handled)
	for i := len(s.events) - 2; i < len(s.events); i++ {
		s.events[i].ID = s.ids(message)
	}
}

// firstTick is the first tick of a script's schedule.
var firstTick = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// schedules records when the schedule began, and that it was stopped after that many ticks.
func (s *script) schedules(ticks int) {
	s.at(5, history.Event{Kind: Began, Note: firstTick.Format(time.RFC3339Nano)})
	s.at(100_000, history.Event{Kind: Rests, Note: firstTick.Add(time.Duration(ticks) * everyTick).Format(time.RFC3339Nano)})
}

// audits is runs with the second subscription.
func (s *script) audits(ms, took int, process, token string, part, attempt int, kind history.Kind) {
	n := len(s.events)
	s.runs(ms, took, process, token, part, attempt, kind)
	for i := range s.events[n:] {
		s.events[n+i].Subscription = Audit
	}
}

// runs runs an attempt at a message for some milliseconds; kind "" means that it does not end.
func (s *script) runs(ms, took int, process, token string, part, attempt int, kind history.Kind) {
	e := history.Event{Kind: history.Started, Process: process, Token: token, Part: part, Attempt: attempt, ID: s.ids(token) + posthaste.MessageID(part)}
	s.at(ms, e)
	if kind != "" {
		e.Kind = kind
		s.at(ms+took, e)
	}
}

func (s *script) strikes(from, to int, kind Fault, whom string) {
	s.faults++
	token := fmt.Sprint(s.faults)
	s.at(from, history.Event{Kind: Struck, Token: token, Note: string(kind), Whom: whom})
	s.at(to, history.Event{Kind: Healed, Token: token, Count: 1})
	if kind == KillWorker {
		s.at(from, history.Event{Kind: Died, Whom: whom, Note: Killed})
	}
}

// misses is a fault without a target.
func (s *script) misses(ms int, kind Fault, whom string) {
	s.strikes(ms, ms, kind, whom)
	s.events[len(s.events)-1].Count = 0
}

// keepsBusy keeps all processes busy until sending ends: s sends every second, and the workers
// handle its messages, except those that idle says are idle at that time.
func (s *script) keepsBusy(idle func(ms int, who string) bool) {
	for ms := 1000; ms < 100_000; ms += 1000 {
		if idle(ms, "s") {
			continue
		}
		token := fmt.Sprint("b", ms)
		s.sends(ms, token, Plain, 2, history.Sent)
		for part, who := range []string{"w1", "w2"} {
			if idle(ms, who) {
				who = []string{"w2", "w1"}[part]
			}
			s.runs(ms+10, 5, who, token, part, 1, history.Handled)
		}
	}
}

// sorted returns the history in the order in which it is read.
func (s *script) sorted() []history.Event {
	slices.SortStableFunc(s.events, func(a, b history.Event) int { return int(a.At - b.At) })
	return s.events
}

// begun returns a run in which all processes take part and that ends well.
func begun() *script {
	s := &script{}
	s.born(0, roleSender, "s")
	s.born(0, roleWorker, "w1", "w2")
	s.sends(10, "p", Plain, 2, history.Sent)
	s.runs(20, 5, "w1", "p", 0, 1, history.Handled)
	s.runs(20, 5, "w2", "p", 1, 1, history.Handled)
	return s
}

// long makes the run a long one.
func (s *script) long() { s.at(0, history.Event{Kind: Planned, Took: longRun}) }

// leavesOut records that a kind of fault was left out.
func (s *script) leavesOut(kind Fault, why string, asked int) {
	s.at(0, history.Event{Kind: LeftOut, Note: string(kind), Key: why, Count: asked})
}

// lives is a process that lives from one second to another, with the given megabytes at each
// age.
func (s *script) lives(from, to int, role, name string, megabytes func(age int) int) {
	s.born(from*1000, role, name)
	for at := from + 1; at < to; at += 2 {
		s.at(at*1000, history.Event{Kind: Memory, Whom: name, Count: megabytes(at-from) << 20})
	}
	s.at(to*1000, history.Event{Kind: Died, Whom: name, Note: Ended})
}

// effects records an effect of a message.
func (s *script) effects(ms int, token string) { s.at(ms, history.Event{Kind: Effect, Token: token}) }

func (s *script) ended() *script {
	s.at(100_000, history.Event{Kind: Calm})
	s.at(120_000, history.Event{Kind: Drained})
	return s
}
