package redis

import (
	"fmt"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// An attempt that ends follows the options of its message, then those of its kind, then those of
// its queue, as they are then.
func TestJB6_OptionsOfKinds(t *testing.T) {
	const its, of, delays = "rules.i and rules.i[kindOf(content)]", "own.n or of.n or rules.n", "b = own.b or of.b or rules.b, m = own.m or of.m or rules.m"
	once := posthaste.KindOptions{MaxAttempts: 1}
	never := posthaste.Backoff{Base: 365 * 24 * time.Hour, Max: 365 * 24 * time.Hour}
	runOptionRules(t, map[string]optionRule{
		"those of the kind": {posthaste.QueueOptions{}, func(t *testing.T, e *Engine) string {
			return fails(t, e, once, posthaste.Message{}, posthaste.OutcomeDead)
		}, []patch{{&settleScript, its, "nil"}, {&settleScript, of, "own.n or rules.n"}}},
		"first those of the message": {posthaste.QueueOptions{}, func(t *testing.T, e *Engine) string {
			return fails(t, e, once, posthaste.Message{MaxAttempts: 2}, posthaste.OutcomeRetried)
		}, []patch{{&settleScript, of, "of.n or own.n or rules.n"}}},
		"else those of the queue": {posthaste.QueueOptions{MaxAttempts: 1}, func(t *testing.T, e *Engine) string {
			return fails(t, e, posthaste.KindOptions{Timeout: time.Hour}, posthaste.Message{}, posthaste.OutcomeDead)
		}, []patch{{&settleScript, of, "own.n or of.n or 20"}}},
		"the delays of the kind": {posthaste.QueueOptions{BackoffBase: time.Millisecond, BackoffMax: time.Millisecond}, func(t *testing.T, e *Engine) string {
			if broken := fails(t, e, posthaste.KindOptions{Backoff: never}, posthaste.Message{}, posthaste.OutcomeRetried); broken != "" {
				return broken
			}
			elapses(t, e, 2*time.Millisecond)
			return unlessNone(receive(t, e, "", 1)) // by the kind it comes within a year
		}, []patch{{&settleScript, delays, "b = own.b or rules.b, m = own.m or rules.m"}}},
		"of a message that is lost": {posthaste.QueueOptions{}, func(t *testing.T, e *Engine) string {
			id := sendKind(t, e, posthaste.Message{})
			update(t, e, posthaste.QueueOptions{Kinds: map[string]posthaste.KindOptions{"sms": once}})
			for range 3 { // only one that ran alone counts
				lose(t, e, func() {})
			}
			return unlessState(t, e, id, posthaste.StateDead)
		}, []patch{{&rescueScript, its, "nil"}}},
	})
}

func sendKind(t *testing.T, e *Engine, m posthaste.Message) posthaste.MessageID {
	t.Helper()
	m.Queue, m.Kind, m.Payload = jobs, "sms", 1
	ids, err := posthaste.IDs(e.Send(t.Context(), m))
	if err != nil {
		t.Fatal(err)
	}
	return ids[0]
}

// fails has a message fail whose kind gets options while it runs.
func fails(t *testing.T, e *Engine, o posthaste.KindOptions, m posthaste.Message, want posthaste.Outcome) string {
	t.Helper()
	sendKind(t, e, m)
	held := receive(t, e, "", 1)
	update(t, e, posthaste.QueueOptions{Kinds: map[string]posthaste.KindOptions{"sms": o}})
	results, err := e.Settle(t.Context(), []posthaste.Settlement{{Delivery: held[0].ID, Outcome: posthaste.OutcomeRetried}})
	if err != nil {
		t.Fatal(err)
	}
	if results[0].Outcome != want {
		return fmt.Sprintf("it ended as %s, want %s", results[0].Outcome, want)
	}
	return ""
}

// lose has a message received, and lost after a change.
func lose(t *testing.T, e *Engine, change func()) {
	t.Helper()
	until(t, "it is received", func() bool {
		reply, err := e.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: jobs}, Max: 1, Lease: time.Microsecond})
		if err != nil {
			t.Fatal(err)
		}
		return len(reply.Deliveries) == 1
	})
	change()
	until(t, "it is lost", func() bool {
		n, err := e.rescueQueue(t.Context(), posthaste.QueueRef{Queue: jobs})
		return err == nil && n == 1
	})
}
