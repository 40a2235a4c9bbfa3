package nats

import (
	"context"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Nothing is left of a message of an ordered queue that was retried, and then became too old.
func TestExpiredOrderedMessageLeavesNothing(t *testing.T) {
	t.Parallel()
	e := openEngine(t, startServer(t))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	must(t, e.CreateQueue(ctx, "jobs", posthaste.QueueOptions{Ordered: true, MaxAge: time.Hour}))
	_, err := e.Send(ctx, posthaste.Message{Queue: "jobs", Key: "k", Payload: 1})
	must(t, err)
	var got []posthaste.RawDelivery
	until(t, ctx, "the message comes", func() bool { got = receiveJobs(t, e, 1); return len(got) == 1 })
	_, err = e.Settle(ctx, []posthaste.Settlement{{Delivery: got[0].ID, Outcome: posthaste.OutcomeRetried, Error: "once", RetryAfter: time.Millisecond}})
	must(t, err)
	q := e.queues.known("jobs")
	kept := q.subjects.under("n", "*", "*", "kept")
	count := func(subject string) int {
		n, err := e.countFrom(ctx, q.stream, subject, 1)
		must(t, err)
		return int(n)
	}
	if n := count(kept); n != 1 {
		t.Fatalf("%d records are kept of a retried message, want 1", n)
	}
	ahead(2*time.Hour, e)
	until(t, ctx, "the message expires", func() bool {
		return len(receiveJobs(t, e, 1)) == 0 && count(q.subjects.under("o", "*")) == 0
	})
	if n := count(kept); n != 0 {
		t.Errorf("%d records are kept of an expired message, want none", n)
	}
}

// A message whose dead letter was stored and whose entry was not acknowledged does not run again.
func TestDeadOrderedMessageDoesNotRun(t *testing.T) {
	t.Parallel()
	e := openEngine(t, startServer(t), WithAckWait(leastAckWait))
	ctx := t.Context()
	must(t, e.CreateQueue(ctx, "jobs", posthaste.QueueOptions{Ordered: true}))
	sendJobs(t, e, posthaste.Message{Payload: 1, Key: "k"}, posthaste.Message{Payload: 2, Key: "k"})
	var got []posthaste.RawDelivery
	next := func() { got = receiveJobs(t, e, 1) }
	until(t, ctx, "the first comes", func() bool { next(); return len(got) == 1 })
	e.holding.get(got[0].ID).reply = "posthaste.nowhere" // its acknowledgment is lost
	first := got[0]
	r, err := e.Settle(ctx, []posthaste.Settlement{{Delivery: first.ID, Outcome: posthaste.OutcomeDead, Error: "no"}})
	if err != nil || !r[0].Settled {
		t.Fatal(r, err)
	}
	until(t, ctx, "another comes", func() bool { next(); return len(got) == 1 })
	if got[0].MessageID == first.MessageID {
		t.Errorf("the dead letter runs again: %+v", got[0])
	}
}
