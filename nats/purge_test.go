package nats

import (
	"context"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// purgeJobs purges queue "jobs", and checks how many messages are purged and how many are left waiting.
func purgeJobs(t *testing.T, e *Engine, want ...posthaste.Purged) {
	t.Helper()
	purged, err := e.PurgeQueue(t.Context(), "jobs")
	must(t, err)
	if len(purged) != len(want) {
		t.Fatalf("purged are %+v, want %+v", purged, want)
	}
	for i := range want {
		if purged[i] != want[i] {
			t.Errorf("purged are %+v, want %+v", purged[i], want[i])
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	until(t, ctx, "nothing waits", func() bool {
		infos, err := e.Queues(t.Context(), "jobs")
		must(t, err)
		for _, s := range infos[0].Subscriptions {
			if s.Depth > 0 {
				return false
			}
		}
		return true
	})
}

// waitingJobs waits until messages of queue "jobs" are counted.
func waitingJobs(t *testing.T, e *Engine, n int64) {
	t.Helper()
	until(t, t.Context(), "the messages wait", func() bool {
		infos, err := e.Queues(t.Context(), "jobs")
		must(t, err)
		return infos[0].Subscriptions[0].Depth == n
	})
}

// The messages of a paused queue are purged, and it stays paused.
func TestPurgePausedQueue(t *testing.T) {
	t.Parallel()
	ctx, a, b := two(t)
	purgesPausedQueue(t, ctx, a, b)
}

func purgesPausedQueue(t *testing.T, ctx context.Context, a, b *Engine) {
	sendJobs(t, a, posthaste.Message{Payload: 1}, posthaste.Message{Payload: 2}, posthaste.Message{Payload: 3, Priority: 1}, posthaste.Message{Payload: 4, Delay: time.Hour})
	waitingJobs(t, a, 4)
	must(t, a.Pause(ctx, posthaste.OfQueue("jobs"), posthaste.PauseOptions{}))
	purgeJobs(t, b, posthaste.Purged{Subscription: posthaste.DefaultSubscription, Messages: 4})
	for _, paused := range consumersPaused(t, ctx, a) {
		if !paused {
			t.Error("a consumer is not paused any more")
		}
	}
	must(t, a.Resume(ctx, posthaste.OfQueue("jobs")))
	if got := receiveJobs(t, a, 10); len(got) > 0 {
		t.Errorf("after the purge came %+v", got)
	}
}

// The messages behind one that runs are purged, and the one that runs stays.
func TestPurgeOrderedQueue(t *testing.T) {
	t.Parallel()
	e := several(t, 1, posthaste.QueueOptions{Ordered: true})[0]
	must(t, e.Subscribe(t.Context(), "jobs", "more", posthaste.SubscriptionOptions{From: posthaste.FromOldest}))
	sendJobs(t, e, posthaste.Message{Payload: 1, Key: "a"}, posthaste.Message{Payload: 2, Key: "a"}, posthaste.Message{Payload: 3, Key: "a"})
	waitingJobs(t, e, 3)
	var got []posthaste.RawDelivery
	until(t, t.Context(), "the first comes", func() bool { got = receiveJobs(t, e, 3); return len(got) == 1 })
	purgeJobs(t, e, posthaste.Purged{Subscription: posthaste.DefaultSubscription, Messages: 2}, posthaste.Purged{Subscription: "more", Messages: 3})
	r, err := e.Settle(t.Context(), []posthaste.Settlement{{Delivery: got[0].ID, Outcome: posthaste.OutcomeDone}})
	if err != nil || !r[0].Settled {
		t.Errorf("the message that ran is %+v, %v", r, err)
	}
	if n := stored(t, e, "jobs"); n != 0 {
		t.Errorf("%d entries are left, want none", n)
	}
}
