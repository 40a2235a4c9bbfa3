package history

import (
	"fmt"
	"slices"

	"github.com/posthaste-mq/posthaste"
)

// Rule names a broken rule.
type Rule string

// The rules.
const (
	Lost     Rule = "lost"     // sent, and not handled
	Invented Rule = "invented" // handed out, and not sent
	Twice    Rule = "twice"    // handled more than once
	Again    Rule = "again"    // an attempt was handed out twice, or after a later one
	TooOften Rule = "too often"
	Order    Rule = "order" // handed out in a different order than sent
)

// Fault is a message for which a rule was broken.
type Fault struct {
	Rule Rule
	ID   posthaste.MessageID
	Text string
}

// Error implements error.
func (f Fault) Error() string { return fmt.Sprintf("message %s: %s: %s", f.ID, f.Rule, f.Text) }

// EveryOne checks that each id was handled.
func EveryOne(ids []posthaste.MessageID, events []Event) (faults []Fault) {
	handled := times(events, Handled)
	for _, id := range ids {
		if handled[id] == 0 {
			faults = append(faults, Fault{Lost, id, "it was not handled"})
		}
	}
	return faults
}

// NoOther checks that only messages among ids were handed out.
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

// Once checks that no message was handled twice.
func Once(events []Event) (faults []Fault) {
	for id, n := range times(events, Handled) {
		if n > 1 {
			faults = append(faults, Fault{Twice, id, fmt.Sprintf("it was handled %d times", n)})
		}
	}
	return sorted(faults)
}

// Attempts checks rules that hold even if processes are killed: each attempt of a message is
// handed out once, later attempts have higher numbers, and there are at most limit attempts
// (0: unlimited).
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

// InOrder checks that first attempts started in the order of ids. Messages that are not in ids
// are ignored.
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
		delete(rank, e.ID) // only the first start determines the order
		if n < highest {
			faults = append(faults, Fault{Order, e.ID, fmt.Sprintf("it started after message %s, which was sent later", before)})
			continue
		}
		highest, before = n, e.ID
	}
	return faults
}

// Exactly checks that all ids were handled once, each attempt was handed out once, and no
// other message was handed out.
func Exactly(ids []posthaste.MessageID, events []Event) error {
	return Merge(EveryOne(ids, events), NoOther(ids, events), Once(events), Attempts(events, 0))
}

// IDs returns the distinct messages of all events of a kind, in order of their first event.
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
