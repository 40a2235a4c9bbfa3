//go:build unix

package acceptance

import (
	"context"
	"sync"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// Two subscriptions of a queue have two workers each: each subscription gets every message
// once. A third one that is added later from the oldest message gets all messages that are
// kept, including those that the others have settled.
func TestDS8_EachSubscriptionGetsEachMessageOnce(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, k kind) {
		s := newStage(t)
		half := size(500, 50_000)
		k.QueueOptions = s.keeping(k.QueueOptions)
		q := s.queueOf(k)
		s.must(s.engine.Subscribe(posthaste.WithActor(s.ctx, "test"), q, "second", posthaste.SubscriptionOptions{}))
		var mu sync.Mutex
		times := map[string]map[posthaste.MessageID]int{}
		total := func(name string) int { mu.Lock(); defer mu.Unlock(); return len(times[name]) }
		start := func(name string) {
			for range 2 {
				w := worker.New(s.open(), worker.Config{Logger: s.log})
				worker.HandleRaw(w, q, func(_ context.Context, d posthaste.RawDelivery) error {
					mu.Lock()
					defer mu.Unlock()
					if times[name] == nil {
						times[name] = map[posthaste.MessageID]int{}
					}
					times[name][d.MessageID]++
					return nil
				}, worker.WithSubscription(name))
				s.run(w)
			}
		}
		start(posthaste.DefaultSubscription)
		start("second")
		ids := s.send(q, half)
		s.until("both have the first half", func() bool {
			return total(posthaste.DefaultSubscription) == half && total("second") == half
		})
		s.settled(q)
		s.must(s.engine.Subscribe(posthaste.WithActor(s.ctx, "test"), q, "third", posthaste.SubscriptionOptions{From: posthaste.FromOldest}))
		start("third")
		ids = append(ids, s.send(q, half)...)
		for _, name := range []string{posthaste.DefaultSubscription, "second", "third"} {
			s.until(name+" has everything", func() bool { return total(name) == len(ids) })
		}
		s.settled(q)
		mu.Lock()
		defer mu.Unlock()
		for name, got := range times {
			for _, id := range ids {
				if got[id] != 1 {
					t.Errorf("%s handled message %s %d times", name, id, got[id])
				}
			}
		}
	})
}
