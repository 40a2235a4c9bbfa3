package history

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/posthaste-mq/posthaste"
)

// good returns a history without faults: message 3 was lost once with its process, and message
// 2 failed once.
func good() (ids []posthaste.MessageID, events []Event) {
	return []posthaste.MessageID{1, 2, 3}, []Event{
		{Kind: Sent, ID: 1}, {Kind: Sent, ID: 2}, {Kind: Sent, ID: 3},
		{Kind: Started, ID: 1, Attempt: 1}, {Kind: Handled, ID: 1, Attempt: 1},
		{Kind: Started, ID: 2, Attempt: 1}, {Kind: Failed, ID: 2, Attempt: 1},
		{Kind: Started, ID: 3, Attempt: 1},
		{Kind: Started, ID: 2, Attempt: 2}, {Kind: Handled, ID: 2, Attempt: 2},
		{Kind: Started, ID: 3, Attempt: 2}, {Kind: Handled, ID: 3, Attempt: 2},
	}
}

func all(ids []posthaste.MessageID, events []Event) []Fault {
	return slices.Concat(EveryOne(ids, events), NoOther(ids, events), Once(events), Attempts(events, 2), InOrder(ids, events))
}

func TestPlantedFaultsAreFound(t *testing.T) {
	t.Parallel()
	if faults := all(good()); len(faults) > 0 {
		t.Fatalf("faults in a good history: %v", faults)
	}
	plant := map[Rule]func([]Event) []Event{
		Lost: func(e []Event) []Event {
			return slices.DeleteFunc(e, func(e Event) bool { return e.ID == 2 && e.Kind == Handled })
		},
		Invented: func(e []Event) []Event { return append(e, Event{Kind: Started, ID: 9, Attempt: 1}) },
		Twice:    func(e []Event) []Event { return append(e, Event{Kind: Handled, ID: 1, Attempt: 1}) },
		Again:    func(e []Event) []Event { return append(e, Event{Kind: Started, ID: 1, Attempt: 1}) },
		TooOften: func(e []Event) []Event { return append(e, Event{Kind: Started, ID: 2, Attempt: 3}) },
		Order: func(e []Event) []Event {
			e[3], e[5] = e[5], e[3]
			return e
		},
	}
	for rule, change := range plant {
		ids, events := good()
		faults := all(ids, change(events))
		if len(faults) != 1 || faults[0].Rule != rule {
			t.Errorf("planted %q, found %v", rule, faults)
		}
	}
}

func TestAttemptsGoingBackAreFound(t *testing.T) {
	t.Parallel()
	faults := Attempts([]Event{{Kind: Started, ID: 1, Attempt: 2}, {Kind: Started, ID: 1, Attempt: 1}}, 0)
	if len(faults) != 1 || faults[0].Rule != Again {
		t.Errorf("found %v", faults)
	}
}

func TestHistoriesOfProcessesAreJoinedByTime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, err := Open(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(dir, "b")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, "a"); err == nil {
		t.Error("two histories of one name")
	}
	for i := range 100 {
		[]*Recorder{a, b}[i%2].Record(Event{Kind: Sent, ID: posthaste.MessageID(i + 1), Note: "line\nbreak"})
	}
	if n, _ := a.Count(Sent); n != 50 {
		t.Errorf("counted %d", n)
	}
	// An event that was cut off by a kill does not count.
	file, err := os.OpenFile(filepath.Join(dir, "a"+suffix), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"kind":"sent","id":"7`); err != nil {
		t.Fatal(err)
	}
	events, err := Read(dir)
	if err != nil || len(events) != 100 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	for i, e := range events {
		if e.ID != posthaste.MessageID(i+1) || e.Process != string("ab"[i%2]) || e.At <= 0 || e.Note != "line\nbreak" {
			t.Fatalf("event %d is %+v", i, e)
		}
	}
	if _, err := file.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); err == nil {
		t.Error("a broken line was taken")
	}
}

func TestCountTellsOfChanges(t *testing.T) {
	t.Parallel()
	r, err := Open(t.TempDir(), "a")
	if err != nil {
		t.Fatal(err)
	}
	n, changed := r.Count(Handled)
	if n != 0 {
		t.Fatal(n)
	}
	go r.Record(Event{Kind: Handled, ID: 1})
	<-changed
	if n, _ := r.Count(Handled); n != 1 {
		t.Fatal(n)
	}
}

// Sync does not return before the file is synced: without an open file it panics.
func TestSyncReachesTheFile(t *testing.T) {
	t.Parallel()
	r, err := Open(t.TempDir(), "a")
	if err != nil {
		t.Fatal(err)
	}
	r.Record(Event{Kind: Handled, ID: 1})
	r.Sync()
	r.Record(Event{Kind: Handled, ID: 2})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("an event counts as synced although its file is closed")
		}
	}()
	r.Sync()
}
