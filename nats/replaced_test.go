package nats

import (
	"context"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// replaceJobs drops queue "jobs" and creates it again.
func replaceJobs(t *testing.T, e *Engine, o posthaste.QueueOptions) {
	t.Helper()
	must(t, e.DropQueue(t.Context(), "jobs", posthaste.DropOptions{}))
	must(t, e.CreateQueue(t.Context(), "jobs", o))
}

// Nothing of a delivery of a dropped queue comes into the queue that has its name now, whose subjects are the
// same: neither its message nor the record that its entry was continued.
func TestDeliveryOfReplacedQueueEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		o posthaste.QueueOptions
		s posthaste.Settlement
	}{
		"retried":  {s: posthaste.Settlement{Outcome: posthaste.OutcomeRetried, RetryAfter: time.Minute, Error: "no"}},
		"released": {s: posthaste.Settlement{Outcome: posthaste.OutcomeReleased}},
		"dead":     {s: posthaste.Settlement{Outcome: posthaste.OutcomeDead, Error: "no"}},
		"ordered":  {o: posthaste.QueueOptions{Ordered: true}, s: posthaste.Settlement{Outcome: posthaste.OutcomeRetried, Error: "no"}},
		"note":     {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := several(t, 1, c.o)[0]
			sendJobs(t, e, posthaste.Message{Payload: "old", Key: "k"})
			var got []posthaste.RawDelivery
			until(t, t.Context(), "the message comes", func() bool { got = receiveJobs(t, e, 1); return len(got) == 1 })
			old := got[0]
			replaceJobs(t, e, c.o)
			var results []posthaste.SettleResult
			var err error
			if c.s.Delivery = old.ID; c.s.Outcome == "" {
				results, err = e.Extend(t.Context(), posthaste.ExtendRequest{Deliveries: []posthaste.DeliveryID{old.ID}, Notes: []posthaste.Note{{Checkpoint: []byte(`1`)}}})
			} else {
				results, err = e.Settle(t.Context(), []posthaste.Settlement{c.s})
			}
			if err != nil || results[0].Settled || e.holding.get(old.ID) != nil {
				t.Errorf("the delivery is %+v, %v, want it ended", results, err)
			}
			if n := stored(t, e, "jobs"); n != 0 {
				t.Errorf("%d entries came into the new queue, want none", n)
			}
			sendJobs(t, e, posthaste.Message{Payload: "new", Key: "k"})
			until(t, t.Context(), "the new message comes", func() bool { got = receiveJobs(t, e, 1); return len(got) > 0 })
			if string(got[0].Payload) != `"new"` {
				t.Errorf("the new queue hands out %+v", got)
			}
		})
	}
}

// replacedTakesNothing is the test above for a retry, which is stored in a batch, with another process that
// replaces the queue.
func replacedTakesNothing(t *testing.T, ctx context.Context, a, b *Engine) {
	sendJobs(t, a, posthaste.Message{Payload: "old"})
	var old []posthaste.RawDelivery
	until(t, ctx, "the message comes", func() bool { old = receiveJobs(t, a, 1); return len(old) == 1 })
	replaceJobs(t, b, posthaste.QueueOptions{})
	r, err := a.Settle(ctx, []posthaste.Settlement{{Delivery: old[0].ID, Outcome: posthaste.OutcomeRetried, RetryAfter: time.Minute, Error: "no"}})
	if err != nil || r[0].Settled {
		t.Errorf("the delivery is %+v, %v, want it ended", r, err)
	}
	if n := stored(t, b, "jobs"); n != 0 {
		t.Errorf("%d entries came into the new queue, want none", n)
	}
}

// A message that came from a dropped queue and was not handed out is not given back to the new queue.
func TestBufferOfReplacedQueueIsDropped(t *testing.T) {
	t.Parallel()
	e := several(t, 1, posthaste.QueueOptions{})[0]
	sendJobs(t, e, posthaste.Message{Payload: "old"})
	q := e.queues.known("jobs")
	buffer := e.buffers.of(q, &q.Subscriptions[0], 0)
	until(t, t.Context(), "the message comes", func() bool {
		p, err := e.buffers.open(buffer, 1, false)
		must(t, err)
		<-p.done
		return e.buffers.hasMessages(buffer)
	})
	replaceJobs(t, e, posthaste.QueueOptions{})
	e.emptyBuffers(t.Context(), true)
	if n := stored(t, e, "jobs"); n != 0 {
		t.Errorf("%d entries came into the new queue, want none", n)
	}
}

// A process that does not know yet that a queue was replaced sends to the new one.
func TestSendToReplacedQueue(t *testing.T) {
	t.Parallel()
	e := several(t, 1, posthaste.QueueOptions{})[0]
	for _, send := range []func() error{
		func() error { _, err := e.Send(t.Context(), posthaste.Message{Queue: "jobs", Payload: 1}); return err },
		func() error {
			_, err := e.Send(t.Context(), posthaste.Message{Queue: "jobs", Payload: 1}, posthaste.Message{Queue: "jobs", Payload: 2})
			return err
		},
	} {
		old := e.queues.known("jobs")
		replaceJobs(t, e, posthaste.QueueOptions{})
		e.queues.mu.Lock()
		e.queues.all["jobs"], e.queues.byNo[old.No] = old, old
		e.queues.mu.Unlock()
		must(t, send())
		if got := receiveJobs(t, e, 1); len(got) != 1 {
			t.Error("the message does not come")
		}
	}
}

// The header with the name of the stream ends with a schedule, and a message that was scheduled can be retried.
func TestScheduledMessageNamesNoStream(t *testing.T) {
	t.Parallel()
	e := several(t, 1, posthaste.QueueOptions{})[0]
	q := e.queues.known("jobs")
	id := sendJobs(t, e, posthaste.Message{Payload: 1, Delay: time.Second})[0]
	m, err := e.lastOn(t.Context(), q.stream, q.subjects.under("s", id.String()))
	if err != nil || m == nil || m.Header.Get(headerStream) != q.stream {
		t.Fatalf("the schedule is %+v, %v", m, err)
	}
	until(t, t.Context(), "it fires", func() bool {
		m, err = e.lastOn(t.Context(), q.stream, q.subjects.under("q", "0"))
		must(t, err)
		return m != nil
	})
	if m.Header.Get(headerStream) != "" {
		t.Errorf("its message names the stream %s", m.Header.Get(headerStream))
	}
	for range 2 {
		var got []posthaste.RawDelivery
		until(t, t.Context(), "it comes", func() bool { got = receiveJobs(t, e, 1); return len(got) == 1 })
		r, err := e.Settle(t.Context(), []posthaste.Settlement{{Delivery: got[0].ID, Outcome: posthaste.OutcomeRetried, RetryAfter: 500 * time.Millisecond, Error: "no"}})
		if err != nil || !r[0].Settled {
			t.Fatal(r, err)
		}
	}
}
