package nats

import (
	"context"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
)

// dropsHalf begins to drop queue "jobs", as a process that is frozen after that.
func dropsHalf(t *testing.T, e *Engine) *queue {
	t.Helper()
	q, err := e.changeQueue(t.Context(), "jobs", func(q *queue) (bool, error) {
		q.Ready, q.Dropping = false, true
		return true, nil
	})
	must(t, err)
	return q
}

// A process that drops a queue and is frozen does not remove the queue that was made with the name meanwhile.
func TestDropIsFrozen(t *testing.T) {
	t.Parallel()
	ctx, a, b := two(t)
	q := dropsHalf(t, a)
	must(t, b.CreateQueue(ctx, "jobs", posthaste.QueueOptions{}))
	sendJobs(t, b, posthaste.Message{Payload: 1})
	must(t, a.finishDrop(ctx, q))
	if got := receiveJobs(t, b, 1); len(got) != 1 {
		t.Error("the message of the new queue is gone")
	}
	if got, err := b.kv.Get(ctx, "number.1"); err != nil || string(got.Value()) != "jobs" {
		t.Errorf("the number of the new queue: %v", err)
	}
}

// A process that is killed while it drops a queue may have freed its number already.
func TestDropIsKilled(t *testing.T) {
	t.Parallel()
	ctx, a, b := two(t)
	q := dropsHalf(t, a)
	must(t, a.js.DeleteStream(ctx, q.stream))
	must(t, a.kv.Delete(ctx, "number.1"))
	numbers := map[int]string{}
	for _, name := range []string{"other", "jobs", "third"} {
		must(t, b.CreateQueue(ctx, name, posthaste.QueueOptions{}))
		q, err := b.queue(ctx, name)
		must(t, err)
		if numbers[q.No] != "" {
			t.Errorf("%s and %s have the number %d", name, numbers[q.No], q.No)
		}
		numbers[q.No] = name
	}
}

// A delivery of a queue that was dropped settles none of the queue that has its name now.
func TestSettleAfterDrop(t *testing.T) {
	t.Parallel()
	url, ctx := startServer(t), t.Context()
	a, b := openEngine(t, url, WithAckWait(leastAckWait)), openEngine(t, url)
	must(t, a.CreateQueue(ctx, "jobs", posthaste.QueueOptions{}))
	sendJobs(t, a, posthaste.Message{Payload: 1})
	old := receiveJobs(t, a, 1)[0]
	must(t, b.DropQueue(ctx, "jobs", posthaste.DropOptions{}))
	must(t, b.CreateQueue(ctx, "jobs", posthaste.QueueOptions{}))
	sendJobs(t, b, posthaste.Message{Payload: 2})
	if got := receiveJobs(t, b, 1); len(got) != 1 {
		t.Fatal("it does not come")
	}
	within, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	_, _ = a.Settle(within, []posthaste.Settlement{{Delivery: old.ID, Outcome: posthaste.OutcomeDone}})
	if left := entries(t, ctx, b); len(left) != 1 {
		t.Error("the message of the new queue was acknowledged")
	}
}

// pullOf waits until an engine has a pull open that waits.
func pullOf(t *testing.T, ctx context.Context, e *Engine) (found *pull) {
	t.Helper()
	until(t, ctx, "a pull waits", func() bool {
		e.buffers.mu.Lock()
		defer e.buffers.mu.Unlock()
		for p := range e.buffers.pulls {
			if p.buffer.waiting == p {
				found = p
			}
		}
		return found != nil
	})
	return found
}

func sleepOnJobs(t *testing.T, ctx context.Context, e *Engine) (rung chan error) {
	t.Helper()
	bell, err := e.Doorbell(ctx)
	must(t, err)
	t.Cleanup(bell.Close)
	rung = make(chan error, 1)
	go func() {
		rung <- bell.Sleep(ctx, "jobs", func(ctx context.Context) (posthaste.LookReply, error) {
			return e.look(ctx, posthaste.QueueRef{Queue: "jobs"})
		})
	}()
	return rung
}

// A sleeper whose pull was answered while no server led the consumer is woken all the same.
func TestSleepWithoutLeader(t *testing.T) {
	t.Parallel()
	ctx, a, b := two(t)
	rung := sleepOnJobs(t, ctx, a)
	p := pullOf(t, ctx, a)
	a.buffers.take(p, &natsgo.Msg{Subject: p.inbox.Subject, Header: natsgo.Header{"Status": {"503"}}})
	sendJobs(t, b, posthaste.Message{Payload: 1})
	select {
	case err := <-rung:
		must(t, err)
	case <-time.After(10 * time.Second):
		t.Error("it sleeps on")
	}
}

// An engine that was closed takes no message.
func TestCloseEndsPulls(t *testing.T) {
	t.Parallel()
	url := startServer(t)
	conn, err := natsgo.Connect(url, natsgo.ReconnectBufSize(-1))
	must(t, err)
	t.Cleanup(conn.Close)
	a, err := New(t.Context(), conn)
	must(t, err)
	b := openEngine(t, url)
	must(t, b.CreateQueue(t.Context(), "jobs", posthaste.QueueOptions{}))
	sleepOnJobs(t, t.Context(), a)
	pullOf(t, t.Context(), a)
	a.Close()
	sendJobs(t, b, posthaste.Message{Payload: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	until(t, ctx, "the message comes", func() bool { return len(receiveJobs(t, b, 1)) == 1 })
}

// A message that must run alone is not lost while its worker is busy.
func TestAloneWaitsLong(t *testing.T) {
	t.Parallel()
	a := openEngine(t, startServer(t), WithAckWait(leastAckWait))
	ctx := t.Context()
	must(t, a.CreateQueue(ctx, "jobs", posthaste.QueueOptions{}))
	sendJobs(t, a, posthaste.Message{Payload: 1})
	d := a.holding.get(receiveJobs(t, a, 1)[0].ID)
	d.meta.Losses = 2
	_, err := a.Settle(ctx, []posthaste.Settlement{{Delivery: d.id, Outcome: posthaste.OutcomeReleased}})
	must(t, err)
	w, err := a.Register(ctx, posthaste.WorkerInfo{Name: "w", Lease: time.Minute})
	must(t, err)
	number := int64(0)
	claim := func(alone bool) posthaste.ClaimReply {
		number++
		got, err := a.Claim(ctx, posthaste.ClaimRequest{Worker: w, Number: number, QueueRef: posthaste.QueueRef{Queue: "jobs"}, Max: 1, AllowAlone: alone})
		must(t, err)
		return got
	}
	until(t, ctx, "it waits", func() bool { return claim(false).AloneWaiting })
	for busy := uptime(); uptime()-busy < 2*leastAckWait; {
		_ = claim(false)
		sleepFor(ctx, 100*time.Millisecond)
	}
	until(t, ctx, "it comes", func() bool {
		got := claim(true).Deliveries
		if len(got) == 0 {
			return false
		}
		d := a.holding.get(got[0].ID)
		if d.meta.LostAlone > 0 || d.meta.attempt() > 1 {
			t.Errorf("it was lost %d times alone, and this is attempt %d, before it ran", d.meta.LostAlone, d.meta.attempt())
		}
		return true
	})
}

// What an at-most-once queue has handed to a process is not lost when another worker of it ends.
func TestAtMostOnceInHand(t *testing.T) {
	t.Parallel()
	url := startServer(t)
	a := openEngine(t, url)
	ctx := t.Context()
	must(t, a.CreateQueue(ctx, "jobs", posthaste.QueueOptions{Mode: posthaste.AtMostOnce}))
	w, err := a.Register(ctx, posthaste.WorkerInfo{Name: "w", Lease: time.Minute})
	must(t, err)
	rung := sleepOnJobs(t, ctx, a)
	pullOf(t, ctx, a)
	sendJobs(t, a, posthaste.Message{Payload: 1})
	must(t, <-rung)
	must(t, a.Unregister(ctx, w))
	within, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	until(t, within, "it comes", func() bool { return len(receiveJobs(t, a, 1)) == 1 })
}

// A process that finds a priority in a queue finds the consumers of all subscriptions for it, even if
// the process that added it is killed.
func TestPriorityHasAllConsumers(t *testing.T) {
	t.Parallel()
	ctx, a, b := two(t)
	old, err := a.queue(ctx, "jobs")
	must(t, err)
	must(t, b.Subscribe(ctx, "jobs", "more", posthaste.SubscriptionOptions{}))
	watch, err := b.kv.Watch(ctx, queueKey+"jobs")
	must(t, err)
	ended := make(chan error, 1)
	go func() { _, err := a.ensurePriority(ctx, old, 5); ended <- err }()
	for entry := range watch.Updates() {
		if entry == nil {
			continue
		}
		q, err := b.readQueue(entry)
		must(t, err)
		if len(q.Priorities) == 0 {
			continue
		}
		if _, err := b.js.Consumer(ctx, q.stream, q.consumer("more", 5)); err != nil {
			t.Errorf("the other subscription does not get it: %v", err)
		}
		break
	}
	must(t, <-ended)
}

// The notes of a lost attempt are removed with it.
func TestNotesOfLostAttempt(t *testing.T) {
	t.Parallel()
	url := startServer(t)
	a, b := openEngine(t, url, WithAckWait(leastAckWait)), openEngine(t, url)
	ctx := t.Context()
	must(t, a.CreateQueue(ctx, "jobs", posthaste.QueueOptions{}))
	sendJobs(t, a, posthaste.Message{Payload: 1})
	d := receiveJobs(t, a, 1)[0]
	_, err := a.Extend(ctx, posthaste.ExtendRequest{Deliveries: []posthaste.DeliveryID{d.ID}, Notes: []posthaste.Note{{Checkpoint: []byte(`1`)}}})
	must(t, err)
	a.Close()
	var again []posthaste.RawDelivery
	until(t, ctx, "it comes again", func() bool { again = receiveJobs(t, b, 1); return len(again) == 1 })
	settled, err := b.Settle(ctx, []posthaste.Settlement{{Delivery: again[0].ID, Outcome: posthaste.OutcomeDone}})
	if err != nil || !settled[0].Settled {
		t.Fatal(settled, err)
	}
	q, err := b.queue(ctx, "jobs")
	must(t, err)
	until(t, ctx, "nothing is left", func() bool { // it is removed after the retry is stored
		left, err := b.subjectsUnder(ctx, q.stream, q.subjects.under("n.>"))
		return err == nil && len(left) == 0
	})
}

// A process that knew a subscription keeps to the AckWait of one that was made again.
func TestAckWaitOfNewSubscription(t *testing.T) {
	t.Parallel()
	url := startServer(t)
	a, b := openEngine(t, url), openEngine(t, url, WithAckWait(leastAckWait))
	ctx := t.Context()
	must(t, a.CreateQueue(ctx, "jobs", posthaste.QueueOptions{}))
	ref := posthaste.QueueRef{Queue: "jobs", Subscription: "more"}
	receive := func() []posthaste.RawDelivery {
		got, err := a.Receive(ctx, posthaste.ReceiveRequest{QueueRef: ref, Max: 1, Lease: time.Minute})
		must(t, err)
		return got.Deliveries
	}
	must(t, a.Subscribe(ctx, "jobs", "more", posthaste.SubscriptionOptions{}))
	receive()
	must(t, b.Unsubscribe(ctx, "jobs", "more", posthaste.DropOptions{}))
	must(t, b.Subscribe(ctx, "jobs", "more", posthaste.SubscriptionOptions{}))
	until(t, ctx, "it is known", func() bool {
		s := a.queues.known("jobs").subscription("more")
		return s != nil && s.AckWait == leastAckWait
	})
	sendJobs(t, b, posthaste.Message{Payload: 1})
	var got []posthaste.RawDelivery
	until(t, ctx, "it comes", func() bool { got = receive(); return len(got) == 1 })
	if lease := a.holding.leaseOf(a.holding.get(got[0].ID)) - uptime(); lease > leastAckWait {
		t.Errorf("the lease is %s, and the server delivers again after %s", lease, leastAckWait)
	}
}

// A process that is killed while it unsubscribes leaves nothing that keeps messages for ever.
func TestUnsubscribeIsKilled(t *testing.T) {
	t.Parallel()
	ctx, a, b := two(t)
	must(t, a.Subscribe(ctx, "jobs", "more", posthaste.SubscriptionOptions{}))
	_, err := a.changeQueue(ctx, "jobs", func(q *queue) (bool, error) {
		q.Subscriptions = q.Subscriptions[:1]
		return true, nil
	})
	must(t, err)
	_, err = b.Maintain(ctx, posthaste.UpkeepSpace)
	must(t, err)
	sendJobs(t, b, posthaste.Message{Payload: 1})
	var got []posthaste.RawDelivery
	until(t, ctx, "it comes", func() bool { got = receiveJobs(t, b, 1); return len(got) == 1 })
	_, err = b.Settle(ctx, []posthaste.Settlement{{Delivery: got[0].ID, Outcome: posthaste.OutcomeDone}})
	must(t, err)
	within, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	until(t, within, "the message is removed", func() bool { return len(entries(t, ctx, b)) == 0 })
}

// A batch whose first parts a leader took that does not lead any more is sent again.
func TestBatchWithoutItsBegin(t *testing.T) {
	t.Parallel()
	ctx, a, _ := two(t)
	q, err := a.queue(ctx, "jobs")
	must(t, err)
	m := (&meta{ID: 1}).encoded(q.subjects.under("q", "0"), nil)
	m.Header.Set(headerBatch, "batch")
	m.Header.Set(headerBatchPlace, "2")
	m.Header.Set(headerBatchCommits, "1")
	_, err = a.publish(ctx, m)
	if again, stored := classifyPublish(err); err == nil || !again || stored {
		t.Errorf("%v is repeated: %v, and may be stored: %v", err, again, stored)
	}
}
