package redis

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
)

// Kinds of events that only this history has. A token identifies one send, a part one of its
// messages.
const (
	intent    history.Kind = "intent"     // a send of Count messages is about to be made
	refused   history.Kind = "refused"    // it was answered that nothing is sent; Note: the code
	unsure    history.Kind = "unsure"     // its answer was lost
	givenOut  history.Kind = "handed out" // a claim that lasted Took returned the message
	takenDone history.Kind = "settled"    // a settlement that lasted Took was taken: done
	probing   history.Kind = "asked"      // the replica is asked whether it has all writes until now
	copied    history.Kind = "copied"     // and it has
	died      history.Kind = "died"       // the master was killed
	kept      history.Kind = "kept"       // in the end the store tells of the message; Note: its state
	left      history.Kind = "left"       // in the end something of the queue is still claimed or waits; Note: which key
)

// The rules besides those of every history.
const (
	half     history.Rule = "half"     // of one send the store has some, and others not
	ghost    history.Rule = "ghost"    // the send was refused, and messages of it are there
	mistaken history.Rule = "mistaken" // a message is there under another id than it was sent under, or an id is of two
	undone   history.Rule = "undone"   // in the end it is not done, or still claimed
)

// period is a time from one event to another.
type period struct{ from, to time.Duration }

// never is later than everything.
const never = time.Duration(1<<63 - 1)

// gap is the period whose writes may be lost with a master: from the last time at which its
// replica was known to be up to date, to the master's death.
type gap struct{ period }

// within reports whether something may have been done in the gap.
func (g gap) within(p period) bool { return p.from < g.to && p.to > g.from }

func gaps(events []history.Event) (all []gap) {
	var asking, safe time.Duration
	for _, e := range events {
		switch e.Kind {
		case probing:
			asking = e.At
		case copied:
			safe = asking
		case died:
			all = append(all, gap{period{safe, e.At}})
		}
	}
	return all
}

// sending is one send, as its sender knows it and as the store has it in the end.
type sending struct {
	period // to is never if it was not answered
	token  string
	answer history.Kind
	count  int
	ids    map[int]posthaste.MessageID // by part, as answers, deliveries and the store report them
	kept   map[int]bool
}

// accounting is what a history comes to.
type accounting struct {
	events []history.Event
	gaps   []gap
	sends  map[string]*sending
	lost   []posthaste.MessageID // acknowledged, and gone with a master
	again  []posthaste.MessageID // handled again, for a master had taken along that they were
	faults []history.Fault
}

// account accounts for every message of a history, by what replication without waiting
// promises: without a death that everything acknowledged is done once, and with one that
// only what the replica did not have yet is lost, or done again.
func account(events []history.Event) *accounting {
	a := &accounting{events: events, gaps: gaps(events), sends: map[string]*sending{}}
	a.read()
	must, known := a.deliveries()
	plain := a.repeated()
	a.faults = append(a.faults, slices.Concat(history.EveryOne(must, events), history.NoOther(known, events), history.Once(plain), history.Attempts(plain, 0))...)
	return a
}

// err are the faults, and nil if there are none.
func (a *accounting) err() error { return history.Merge(a.faults) }

func (a *accounting) broken(rule history.Rule, id posthaste.MessageID, format string, args ...any) {
	a.faults = append(a.faults, history.Fault{Rule: rule, ID: id, Text: fmt.Sprintf(format, args...)})
}

// excuse is the gap in which something may have been done, and not copied.
func (a *accounting) excuse(p period) *gap {
	for i, g := range a.gaps {
		if g.within(p) {
			return &a.gaps[i]
		}
	}
	return nil
}

// read takes the history apart by sends, and looks whether ids and parts fit together.
func (a *accounting) read() {
	for _, e := range a.events { // an intent is its sender's first, and others' clocks are compared
		if e.Kind == intent {
			a.sends[e.Token] = &sending{period: period{e.At, never}, token: e.Token, count: e.Count, ids: map[int]posthaste.MessageID{}, kept: map[int]bool{}}
		}
	}
	whose := map[posthaste.MessageID]string{}
	for _, e := range a.events {
		s := a.sends[e.Token]
		switch e.Kind {
		case history.Sent, refused, unsure:
			s.answer, s.to = e.Kind, e.At
			for part, id := range e.IDs {
				a.belongs(whose, s, part, id)
			}
		case history.Started, kept:
			if s == nil || e.Part >= s.count {
				a.broken(history.Invented, e.ID, "it is part %d of %q, which was never sent", e.Part, e.Token)
				continue
			}
			a.belongs(whose, s, e.Part, e.ID)
			if e.Kind == kept {
				s.kept[e.Part] = true
				if e.Note != string(posthaste.StateDone) {
					a.broken(undone, e.ID, "in the end it is %s", e.Note)
				}
			}
		case left:
			a.broken(undone, 0, "in the end there is something in %s", e.Note)
		}
	}
}

func (a *accounting) belongs(whose map[posthaste.MessageID]string, s *sending, part int, id posthaste.MessageID) {
	place := fmt.Sprintf("%s.%d", s.token, part)
	if before, known := s.ids[part]; known && before != id {
		a.broken(mistaken, id, "%s is known as message %s, too", place, before)
	}
	if before, known := whose[id]; known && before != place {
		a.broken(mistaken, id, "it is %s, and %s", place, before)
	}
	s.ids[part], whose[id] = id, place
}

// deliveries checks each send by its answer. It returns the messages that must have been
// handled, and those that may be handed out.
func (a *accounting) deliveries() (must, known []posthaste.MessageID) {
	for _, token := range slices.Sorted(maps.Keys(a.sends)) {
		s := a.sends[token]
		ids := make([]posthaste.MessageID, 0, s.count)
		for _, part := range slices.Sorted(maps.Keys(s.ids)) {
			ids = append(ids, s.ids[part])
		}
		some := posthaste.MessageID(0)
		if len(ids) > 0 {
			some = ids[0]
		}
		known = append(known, ids...)
		if n := len(s.kept); n > 0 && n < s.count {
			a.broken(half, some, "of the %d messages of %s the store has %d", s.count, token, n)
		}
		switch {
		case len(s.kept) > 0 && s.answer != refused:
			must = append(must, ids...)
		case s.answer == refused && len(ids) > 0:
			a.broken(ghost, some, "%s was refused", token)
		case len(ids) > 0 && a.excuse(s.period) == nil:
			a.broken(history.Lost, some, "the store has forgotten %s, and no master died that alone knew it", token)
		case s.answer == history.Sent:
			a.lost = append(a.lost, ids...)
		}
	}
	return must, known
}

// run is one time that a message was handled.
type run struct {
	id      posthaste.MessageID
	attempt int
	handed  period // the claim that returned it
	start   time.Duration
	end     time.Duration // never if it did not end
	settled period        // the settlement that was taken; to is never if none was
}

// runs are those of each message, by time.
func (a *accounting) runs() map[posthaste.MessageID][]*run {
	// A prefetched message may be handed out again before its first run begins.
	all, given := map[posthaste.MessageID][]*run{}, map[posthaste.MessageID][]period{}
	for _, e := range a.events {
		took := period{e.At - e.Took, e.At}
		switch e.Kind {
		case givenOut:
			given[e.ID] = append(given[e.ID], took)
		case history.Started:
			handed := period{}
			if of := given[e.ID]; len(of) > 0 {
				handed, given[e.ID] = of[0], of[1:]
			}
			all[e.ID] = append(all[e.ID], &run{e.ID, e.Attempt, handed, e.At, never, period{never, never}})
		case history.Handled:
			if of := all[e.ID]; len(of) > 0 && of[len(of)-1].end == never {
				of[len(of)-1].end = e.At
			}
		case takenDone:
			if of := all[e.ID]; len(of) > 0 && of[len(of)-1].settled.to == never {
				of[len(of)-1].settled = took
			}
		}
	}
	return all
}

// repeated finds messages that ran again, and returns the events without the further runs that
// the death of a master explains. A message that was handed out or settled in a gap runs
// again. If its worker lives, the message was handed back, which does not count as an attempt.
func (a *accounting) repeated() (plain []history.Event) {
	type moment struct {
		id posthaste.MessageID
		at time.Duration
	}
	explained := map[moment]bool{}
	for id, runs := range a.runs() {
		for i, r := range runs[1:] {
			before := runs[i]
			if !slices.ContainsFunc(a.gaps, func(g gap) bool { return before.taken(g) && r.handed.to > g.to }) {
				continue
			}
			if r.attempt < before.attempt {
				a.broken(history.Again, id, "attempt %d came after attempt %d", r.attempt, before.attempt)
			}
			a.again = append(a.again, id)
			explained[moment{id, r.start}], explained[moment{id, r.end}] = true, true
		}
	}
	slices.Sort(a.again)
	return slices.DeleteFunc(slices.Clone(a.events), func(e history.Event) bool {
		return (e.Kind == history.Started || e.Kind == history.Handled) && explained[moment{e.ID, e.At}]
	})
}

// taken reports whether the death of the master may have undone this run's claim or
// settlement. A run that was never settled counts as undone.
func (r *run) taken(g gap) bool {
	return r.handed.from < g.to && (r.settled.to == never || g.within(r.settled))
}

// String summarizes the account.
func (a *accounting) String() string {
	sends, handledBy := map[history.Kind]int{}, map[posthaste.MessageID]int{}
	for _, s := range a.sends {
		sends[cmp.Or(s.answer, "not answered")]++
	}
	codes := map[string]int{}
	for _, e := range a.events {
		switch e.Kind {
		case refused, unsure:
			codes[e.Note]++
		case history.Handled:
			handledBy[e.ID]++
		}
	}
	var text strings.Builder
	for _, answer := range slices.Sorted(maps.Keys(sends)) {
		fmt.Fprintf(&text, "%d sends %s, ", sends[answer], answer)
	}
	fmt.Fprintf(&text, "%d messages handled, %d gone with their master, %d handled again; codes %v", len(handledBy), len(a.lost), len(a.again), codes)
	return text.String()
}
