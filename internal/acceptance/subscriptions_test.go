//go:build unix

package acceptance

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// One worker handles several subscriptions of a queue: each gets every message once, whether
// the worker sleeps or is busy, and a failing or slow one does not affect the others.
func TestSubscriptionsOfOneQueueInOneWorker(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.failing() // one of them does
	q := s.queue(posthaste.QueueOptions{MaxAttempts: 2, BackoffBase: 1, BackoffMax: 1})
	for _, name := range []string{"audit", "mail"} {
		s.must(s.engine.Subscribe(posthaste.WithActor(s.ctx, "ada"), q, name, posthaste.SubscriptionOptions{}))
	}
	var mu sync.Mutex
	got := map[string]int{}
	handle := func(_ context.Context, d posthaste.RawDelivery) error {
		mu.Lock()
		defer mu.Unlock()
		got[d.Subscription+" "+string(d.Payload)]++
		if d.Subscription == "mail" && string(d.Payload) == "3" {
			return fmt.Errorf("no mail for this one")
		}
		return nil
	}
	w := worker.New(s.open(), worker.Config{Logger: s.log})
	for _, name := range []string{posthaste.DefaultSubscription, "audit", "mail"} {
		worker.HandleRaw(w, q, handle, worker.WithSubscription(name))
	}
	s.run(w)
	const each, slow = 500, 2
	total := func() int { mu.Lock(); defer mu.Unlock(); return len(got) }
	// The worker falls asleep before each of these. Not many: one that is sent in the moment in
	// which a worker falls asleep counts as dense traffic, and the process polls longer each time.
	for i := range slow {
		s.asleep(q)
		_, err := s.client.Send(s.ctx, posthaste.Message{Queue: q, Payload: i})
		s.must(err)
		s.until("each subscription got it", func() bool { return total() == 3*(i+1) })
	}
	for i := slow; i < each; i++ {
		_, err := s.client.Send(s.ctx, posthaste.Message{Queue: q, Payload: i})
		s.must(err)
	}
	s.until("each subscription got everything", func() bool { return total() == 3*each })
	s.settled(q)
	mu.Lock()
	defer mu.Unlock()
	for what, n := range got {
		if want := 1 + map[bool]int{true: 1}[what == "mail 3"]; n != want {
			t.Errorf("%s was handled %d times, want %d", what, n, want)
		}
	}
}
