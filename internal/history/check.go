package history

import (
	"fmt"
	"slices"

	"github.com/posthaste-mq/posthaste"
)

// Rule names what was broken.
type Rule string

// The rules.
const (
	Lost     Rule = "lost"     // sent, and nobody is done with it
	Invented Rule = "invented" // handed out, and nobody sent it
	Twice    Rule = "twice"    // handled more than once
	Again    Rule = "again"    // one attempt was handed out twice, or after a later one
	TooOften Rule = "too often"
	Order    Rule = "order" // handed out in another order than sent
)

// Fault is one message that a rule was broken for.
type Fault struct {
	Rule Rule
	ID   posthaste.MessageID
	Text string
}

// Error implements error.
func (f Fault) Error() string { return fmt.Sprintf("message %s: %s: %s", f.ID, f.Rule, f.Text) }

// EveryOne checks that each id is handled by somebody.
func EveryOne(ids []posthaste.MessageID, events []Event) (faults []Fault) {
	handled := times(events, Handled)
	for _, id := range ids {
		if handled[id] == 0 {
			faults = append(faults, Fault{Lost, id, "nobody has handled it"})
		}
	}
	return faults
}

// NoOther checks that nobody got a message that is not among ids.
func NoOther(ids []posthaste.MessageID, events []Event) (faults []Fault) {
	known := make(map[posthaste.MessageID]bool, len(ids))
	for _, id := range ids {
		known[id] = true
	}
	for _, e := range events {
		if e.Kind == Started && !known[e.ID] {
			known[e.ID] = true
			faults = append(faults, Fault{Invented, e.ID, "it was handed to " + e.Process + ", and was not sent"})
		}
	}
	return faults
}

// Once checks that nothing was handled twice.
func Once(events []Event) (faults []Fault) {
	for id, n := range times(events, Handled) {
		if n > 1 {
			faults = append(faults, Fault{Twice, id, fmt.Sprintf("it was handled %d times", n)})
		}
	}
	return sorted(faults)
}

// Attempts checks what holds also where processes die: one attempt of a
// message is handed out once, later attempts have higher numbers, and there
// are at most limit of them (0: any number).
func Attempts(events []Event, limit int) (faults []Fault) {
	last := map[posthaste.MessageID]Event{}
	for _, e := range events {
		if e.Kind != Started {
			continue
		}
		before, any := last[e.ID]
		last[e.ID] = e
		switch {
		case any && e.Attempt <= before.Attempt:
			faults = append(faults, Fault{Again, e.ID, fmt.Sprintf("%s got attempt %d after %s got attempt %d", e.Process, e.Attempt, before.Process, before.Attempt)})
		case limit > 0 && e.Attempt > limit:
			faults = append(faults, Fault{TooOften, e.ID, fmt.Sprintf("%s got attempt %d of at most %d", e.Process, e.Attempt, limit)})
		}
	}
	return faults
}

// InOrder checks that first attempts started in the order of ids. Messages
// among the events that are not in ids are passed over.
func InOrder(ids []posthaste.MessageID, events []Event) (faults []Fault) {
	rank := make(map[posthaste.MessageID]int, len(ids))
	for i, id := range ids {
		rank[id] = i + 1
	}
	highest := 0
	var before posthaste.MessageID
	for _, e := range events {
		n := rank[e.ID]
		if e.Kind != Started || e.Attempt != 1 || n == 0 {
			continue
		}
		delete(rank, e.ID) // its order is told by its first start
		if n < highest {
			faults = append(faults, Fault{Order, e.ID, fmt.Sprintf("it started after message %s, which was sent later", before)})
			continue
		}
		highest, before = n, e.ID
	}
	return faults
}

// Exactly checks that ids were all handled, each once, each attempt once, and
// nothing else was handed out.
func Exactly(ids []posthaste.MessageID, events []Event) error {
	return Merge(EveryOne(ids, events), NoOther(ids, events), Once(events), Attempts(events, 0))
}

// IDs returns the messages of all events of a kind, each once, in order of
// their first.
func IDs(events []Event, kind Kind) (ids []posthaste.MessageID) {
	seen := map[posthaste.MessageID]bool{}
	for _, e := range events {
		if e.Kind == kind && !seen[e.ID] {
			seen[e.ID] = true
			ids = append(ids, e.ID)
		}
	}
	return ids
}

func times(events []Event, kind Kind) map[posthaste.MessageID]int {
	n := map[posthaste.MessageID]int{}
	for _, e := range events {
		if e.Kind == kind {
			n[e.ID]++
		}
	}
	return n
}

func sorted(faults []Fault) []Fault {
	slices.SortFunc(faults, func(a, b Fault) int { return int(a.ID - b.ID) })
	return faults
}
