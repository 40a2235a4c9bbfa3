package prove

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
)

// at is a time of a history, in seconds.
func at(seconds float64) time.Duration {
	return time.Minute + time.Duration(seconds*float64(time.Second))
}

// good returns a history without a fault of the queue: worker-1 is killed at 10 s. Message a was
// handled right before and again, b was cut short and ran again, c was rolled back, d has no
// answer and arrived, e has none and did not.
func good() []history.Event {
	return []history.Event{
		{Kind: Began, At: at(0), Process: "prove"},
		{Kind: Intent, At: at(1), Process: "sender-1", Token: "a", Count: 1},
		{Kind: history.Sent, At: at(2), Process: "sender-1", Token: "a", Count: 1, IDs: []posthaste.MessageID{1}},
		{Kind: Intent, At: at(2), Process: "sender-1", Token: "b", Count: 1},
		{Kind: history.Sent, At: at(3), Process: "sender-1", Token: "b", Count: 1, IDs: []posthaste.MessageID{2}},
		{Kind: Intent, At: at(3), Process: "sender-1", Token: "c", Count: 2},
		{Kind: RolledBack, At: at(4), Process: "sender-1", Token: "c", Count: 2},
		{Kind: Intent, At: at(4), Process: "sender-1", Token: "e", Count: 3},
		{Kind: Unknown, At: at(5), Process: "sender-1", Token: "e", Count: 3},
		{Kind: history.Started, At: at(9.4), Process: "worker-1", Token: "a", ID: 1, Attempt: 1},
		{Kind: history.Handled, At: at(9.5), Process: "worker-1", Token: "a", ID: 1, Attempt: 1},
		{Kind: history.Started, At: at(9.8), Process: "worker-1", Token: "b", ID: 2, Attempt: 1},
		{Kind: Settled, At: at(9.9), Process: "worker-1", Count: 1},
		{Kind: Struck, At: at(10), Process: "prove", Token: "fault-1", Note: string(KillWorker), Whom: "worker-1", Count: 1},
		{Kind: Down, At: at(10.05), Process: "prove", Token: "fault-1"},
		{Kind: Healed, At: at(10.1), Process: "prove", Token: "fault-1"},
		{Kind: Intent, At: at(11), Process: "sender-1", Token: "d", Count: 2},
		{Kind: history.Started, At: at(12), Process: "worker-2", Token: "d", Part: 0, ID: 5, Attempt: 1},
		{Kind: history.Handled, At: at(12.5), Process: "worker-2", Token: "d", Part: 0, ID: 5, Attempt: 1},
		{Kind: history.Started, At: at(12), Process: "worker-2", Token: "d", Part: 1, ID: 6, Attempt: 1},
		{Kind: history.Handled, At: at(12.6), Process: "worker-2", Token: "d", Part: 1, ID: 6, Attempt: 1},
		{Kind: history.Started, At: at(20), Process: "worker-2", Token: "a", ID: 1, Attempt: 2},
		{Kind: history.Handled, At: at(20.1), Process: "worker-2", Token: "a", ID: 1, Attempt: 2},
		{Kind: history.Started, At: at(20), Process: "worker-2", Token: "b", ID: 2, Attempt: 2},
		{Kind: history.Handled, At: at(20.2), Process: "worker-2", Token: "b", ID: 2, Attempt: 2},
		{Kind: Calm, At: at(60), Process: "prove"},
	}
}

func check(t *testing.T, events []history.Event) *Report {
	t.Helper()
	slices.SortStableFunc(events, func(x, y history.Event) int { return int(x.At - y.At) })
	r, err := Check(events)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAGoodHistoryIsAccountedFor(t *testing.T) {
	t.Parallel()
	r := check(t, good())
	if !r.Kept() {
		t.Fatalf("broken: %q", r.Broken)
	}
	if r.Attempted != 9 || r.Acknowledged != 2 || r.RolledBack != 2 || r.Unknown != 5 || r.UnknownHandled != 2 || r.Handled != 4 ||
		r.Lost != 0 || r.Redelivered != 2 || r.Doubled != 1 || r.Unexplained != 0 {
		t.Errorf("the account is %+v", r)
	}
	f := r.Faults[0]
	if f.Whom != "worker-1" || f.At != duration(10*time.Second) || f.InFlight != 1 || f.Doubled != 1 ||
		f.LastRedelivery != duration(10*time.Second) || f.FlowedAfter != duration(2450*time.Millisecond) {
		t.Errorf("the fault is %+v", f)
	}
	if d := r.Doubles[0]; d.Message != "a.0" || d.Fault != 1 || d.First != "worker-1" || d.Second != "worker-2" {
		t.Errorf("the double is %+v", d)
	}
}

// A worker that could not settle for a while explains a double of a message that it handled
// before that.
func TestASlowSettlementExplainsADouble(t *testing.T) {
	t.Parallel()
	slow := []history.Event{
		{Kind: history.Started, At: at(5), Process: "worker-1", Token: "b", ID: 2},
		{Kind: history.Handled, At: at(5.1), Process: "worker-1", Token: "b", ID: 2},
	}
	confirmed := history.Event{Kind: Settled, At: at(6), Process: "worker-1", Count: 1}
	without := slices.DeleteFunc(good(), func(e history.Event) bool { return e.Kind == Settled })
	if r := check(t, slices.Concat(without, slow)); !r.Kept() || r.Doubled != 2 {
		t.Errorf("%d doubles, broken: %q", r.Doubled, r.Broken)
	}
	if r := check(t, append(slices.Concat(without, slow), confirmed)); r.Unexplained != 1 {
		t.Errorf("%d unexplained doubles, although the acknowledgment was confirmed: %q", r.Unexplained, r.Broken)
	}
}

func TestPlantedFaultsOfTheQueueAreFound(t *testing.T) {
	t.Parallel()
	without := func(events []history.Event, kind history.Kind, token string) []history.Event {
		return slices.DeleteFunc(events, func(e history.Event) bool { return e.Kind == kind && e.Token == token })
	}
	run := func(token string, part int, process string, from float64) []history.Event {
		return []history.Event{
			{Kind: history.Started, At: at(from), Process: process, Token: token, Part: part, ID: 9},
			{Kind: history.Handled, At: at(from + 0.1), Process: process, Token: token, Part: part, ID: 9},
		}
	}
	for name, plant := range map[string]struct {
		change func([]history.Event) []history.Event
		want   string
	}{
		"a message that is lost": {func(e []history.Event) []history.Event { return without(e, history.Handled, "b") }, "lost: message 1 of b"},
		"a double without a fault": {func(e []history.Event) []history.Event { return append(e, run("b", 0, "worker-2", 30)...) },
			"handled twice without a fault: message 1 of b, by worker-2"},
		"a double long before the fault": {func(e []history.Event) []history.Event { return append(e, run("b", 0, "worker-1", 5)...) },
			"handled twice without a fault: message 1 of b, by worker-1"},
		"a double beside the kill of another process": {func(e []history.Event) []history.Event {
			return slices.Concat(e, run("d", 1, "worker-3", 9.7))
		}, "handled twice without a fault: message 2 of d, by worker-3"},
		"a message that was rolled back": {func(e []history.Event) []history.Event { return append(e, run("c", 1, "worker-2", 30)...) },
			"never sent: message 2 of c was rolled back"},
		"half a transaction": {func(e []history.Event) []history.Event { return append(e, run("e", 0, "worker-2", 30)...) },
			"half a transaction: of e"},
		"a message that no sender sent": {func(e []history.Event) []history.Event { return append(e, run("x", 0, "worker-2", 30)...) },
			"which no sender sent"},
		"no flow after the fault": {func(e []history.Event) []history.Event {
			return slices.DeleteFunc(e, func(e history.Event) bool { return e.Token == "d" })
		}, "no message that was sent after fault 1"},
	} {
		r := check(t, plant.change(good()))
		if len(r.Broken) != 1 || !strings.Contains(r.Broken[0], plant.want) {
			t.Errorf("%s: found %q, want %q", name, r.Broken, plant.want)
		}
	}
}
