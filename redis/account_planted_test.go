package redis

import (
	"slices"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
)

// entry is what a planted history says of one message, or of one send.
func entry(kind history.Kind, token string, part int, id posthaste.MessageID) history.Event {
	return history.Event{Kind: kind, Token: token, Part: part, ID: id, Attempt: 1}
}

func sendOf(token string, count int) history.Event {
	return history.Event{Kind: intent, Token: token, Count: count}
}

func answerTo(token string, kind history.Kind, ids ...posthaste.MessageID) history.Event {
	return history.Event{Kind: kind, Token: token, IDs: ids}
}

// doneWith is a message that is handled and settled.
func doneWith(token string, part int, id posthaste.MessageID) []history.Event {
	return []history.Event{entry(givenOut, "", 0, id), entry(history.Started, token, part, id), entry(history.Handled, token, part, id), entry(takenDone, "", 0, id)}
}

func keptAs(state posthaste.State, token string, part int, id posthaste.MessageID) history.Event {
	return history.Event{Kind: kept, Token: token, Part: part, ID: id, Note: string(state)}
}

// overOneDeath is a history in which all is as promised: a and b were copied when their
// master died, c was not, and that b was settled was not, either; d's answer was lost, and it
// is there, e was refused, f's answer was lost, and it is not there; g came later.
func overOneDeath() []history.Event {
	return slices.Concat(
		[]history.Event{sendOf("a", 2), answerTo("a", history.Sent, 1, 2), sendOf("b", 1), answerTo("b", history.Sent, 3)},
		doneWith("a", 0, 1), doneWith("a", 1, 2),
		[]history.Event{entry(givenOut, "", 0, 3), entry(history.Started, "b", 0, 3)},
		[]history.Event{{Kind: probing}, {Kind: copied}},
		[]history.Event{entry(history.Handled, "b", 0, 3), entry(takenDone, "", 0, 3)},
		[]history.Event{sendOf("c", 2), answerTo("c", history.Sent, 4, 5)}, doneWith("c", 0, 4),
		[]history.Event{sendOf("d", 2), {Kind: died}, answerTo("d", unsure), sendOf("e", 1), answerTo("e", refused), sendOf("f", 1), answerTo("f", unsure)},
		doneWith("d", 0, 6), doneWith("d", 1, 7), doneWith("b", 0, 3),
		[]history.Event{sendOf("g", 2), answerTo("g", history.Sent, 8, 9)}, doneWith("g", 0, 8), doneWith("g", 1, 9),
		[]history.Event{keptAs("done", "a", 0, 1), keptAs("done", "a", 1, 2), keptAs("done", "b", 0, 3),
			keptAs("done", "d", 0, 6), keptAs("done", "d", 1, 7), keptAs("done", "g", 0, 8), keptAs("done", "g", 1, 9)},
	)
}

// What the accounts of the failover and of moving slots hold to is found where it is broken.
func TestAccountFindsPlantedFaults(t *testing.T) {
	t.Parallel()
	without := func(kind history.Kind, ids ...posthaste.MessageID) func([]history.Event) []history.Event {
		return func(all []history.Event) []history.Event {
			return slices.DeleteFunc(all, func(e history.Event) bool { return e.Kind == kind && (len(ids) == 0 || slices.Contains(ids, e.ID)) })
		}
	}
	with := func(more ...history.Event) func([]history.Event) []history.Event {
		return func(all []history.Event) []history.Event { return append(all, more...) }
	}
	before := func(kind history.Kind, more ...history.Event) func([]history.Event) []history.Event {
		return func(all []history.Event) []history.Event {
			at := slices.IndexFunc(all, func(e history.Event) bool { return e.Kind == kind })
			return slices.Insert(all, at, more...)
		}
	}
	later := func(e history.Event) history.Event {
		e.Attempt = 2
		return e
	}
	for name, c := range map[string]struct {
		plant func([]history.Event) []history.Event
		rules []history.Rule
	}{
		"nothing":                                      {with(), nil},
		"settled, and not handled":                     {without(history.Handled, 1), []history.Rule{history.Lost}},
		"an unsure one settled, and not handled":       {without(history.Handled, 6), []history.Rule{history.Lost}},
		"copied and gone":                              {without(kept, 1, 2), []history.Rule{history.Lost}},
		"sent after the death and gone":                {without(kept, 8, 9), []history.Rule{history.Lost}},
		"sent before the death, and no probe was made": {without(copied), nil},
		"gone, and no master died":                     {without(died), []history.Rule{history.Again, history.Lost, history.Twice}},
		"half of a send":                               {without(kept, 2), []history.Rule{half}},
		"half of a send whose master died":             {with(keptAs("done", "c", 0, 4)), []history.Rule{half, history.Lost}},
		"half of a send without answer":                {without(kept, 7), []history.Rule{half}},
		"refused and there":                            {with(append(doneWith("e", 0, 10), keptAs("done", "e", 0, 10))...), []history.Rule{ghost}},
		"refused and handed out":                       {with(doneWith("e", 0, 10)...), []history.Rule{ghost}},
		"unsure, handled and gone":                     {with(doneWith("f", 0, 10)...), []history.Rule{history.Lost}},
		"of no send":                                   {with(doneWith("x", 0, 10)...), []history.Rule{history.Invented}},
		"under another id":                             {with(doneWith("g", 0, 10)...), []history.Rule{history.Invented, mistaken}},
		"one id for two":                               {with(doneWith("f", 0, 9)...), []history.Rule{history.Again, history.Lost, mistaken, history.Twice}},
		"running in the end":                           {with(keptAs("running", "g", 0, 8)), []history.Rule{undone}},
		"claimed in the end":                           {with(history.Event{Kind: left, Note: "run"}), []history.Rule{undone}},
		"settled and copied, and again":                {with(later(entry(history.Started, "a", 0, 1)), later(entry(history.Handled, "a", 0, 1))), []history.Rule{history.Twice}},
		"settled after the death, and again":           {with(doneWith("g", 0, 8)...), []history.Rule{history.Again, history.Twice}},
		"again before the death":                       {before(died, doneWith("b", 0, 3)...), []history.Rule{history.Again, history.Twice}},
		"a third time":                                 {with(doneWith("b", 0, 3)...), []history.Rule{history.Again, history.Twice}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events := c.plant(overOneDeath())
			for i := range events {
				events[i].At = time.Duration(i + 1)
			}
			var found []history.Rule
			a := account(events)
			for _, f := range a.faults {
				found = append(found, f.Rule)
			}
			slices.Sort(found)
			if found = slices.Compact(found); !slices.Equal(found, c.rules) {
				t.Errorf("found %v: %v", found, a.err())
			}
			if name == "nothing" && (!slices.Equal(a.lost, []posthaste.MessageID{4, 5}) || !slices.Equal(a.again, []posthaste.MessageID{3})) {
				t.Errorf("gone %v, again %v", a.lost, a.again)
			}
		})
	}
}
