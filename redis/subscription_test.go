package redis

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

const second = "second"

func subscribe(t *testing.T, e *Engine, name string, o posthaste.SubscriptionOptions) {
	t.Helper()
	if err := e.Subscribe(posthaste.WithActor(t.Context(), "ada"), jobs, name, o); err != nil {
		t.Fatal(err)
	}
}

// receive receives for a subscription.
func receive(t *testing.T, e *Engine, subscription string, most int) []posthaste.RawDelivery {
	t.Helper()
	reply, err := e.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: jobs, Subscription: subscription}, Max: most, Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return reply.Deliveries
}

// another is an engine of another process, which knows what there is now.
func another(t *testing.T, e *Engine) *Engine {
	t.Helper()
	o, err := New(t.Context(), e.client, WithPrefix(e.keys.prefix))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.registry.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	return o
}

func infoOf(t *testing.T, e *Engine, subscription string) posthaste.SubscriptionInfo {
	t.Helper()
	infos, err := e.Queues(t.Context(), jobs)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range infos[0].Subscriptions {
		if s.Name == subscription {
			return s
		}
	}
	t.Fatalf("the queue has no subscription %s: %+v", subscription, infos)
	return posthaste.SubscriptionInfo{}
}

// The default subscription also releases its messages when it ends. The others go on, and a
// message that no subscription wants is not stored.
func TestUnsubscribeDefault(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{})
	old := send(t, e, 3)
	subscribe(t, e, second, posthaste.SubscriptionOptions{Filter: posthaste.Filter{Kinds: []string{"x"}}})
	of := func(kind string) posthaste.Message { return posthaste.Message{Queue: jobs, Payload: 1, Kind: kind} }
	ids, err := posthaste.IDs(e.Send(t.Context(), of("x"), of("y"), of("x")))
	if err != nil {
		t.Fatal(err)
	}
	held := receive(t, e, "", 4)
	o := another(t, e)
	if err := o.Unsubscribe(posthaste.WithActor(t.Context(), "ada"), jobs, posthaste.DefaultSubscription, posthaste.DropOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := done(t, e, held...); n != 0 {
		t.Errorf("%d deliveries of the ended subscription were settled", n)
	}
	later, err := posthaste.IDs(e.Send(t.Context(), of("x"), of("y")))
	if err != nil || later[1] <= later[0] {
		t.Fatal(later, err)
	}
	if _, err := e.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: jobs}, Max: 1, Lease: time.Minute}); posthaste.CodeOf(err) != posthaste.CodeNotFound {
		t.Errorf("receiving for the one that has ended: %v", err)
	}
	for _, id := range []posthaste.MessageID{old[0], ids[1], later[1]} {
		if _, err := e.Message(t.Context(), id); posthaste.CodeOf(err) != posthaste.CodeNotFound {
			t.Errorf("message %d, which no subscription wants: %v", id, err)
		}
	}
	for name, err := range map[string]error{"the only one": e.Unsubscribe(posthaste.WithActor(t.Context(), "ada"), jobs, second, posthaste.DropOptions{}), "once more": o.Subscribe(posthaste.WithActor(t.Context(), "ada"), jobs, "default", posthaste.SubscriptionOptions{})} {
		if posthaste.CodeOf(err) != posthaste.CodeConflict {
			t.Errorf("%s: %v", name, err)
		}
	}
	subscribe(t, e, "third", posthaste.SubscriptionOptions{From: posthaste.FromOldest})
	if got := receive(t, e, "third", 10); len(got) != 3 || done(t, e, got...) != 3 {
		t.Errorf("a third got %+v", got)
	}
	if got := receive(t, e, second, 10); len(got) != 3 || got[0].MessageID != ids[0] || got[2].MessageID != later[0] || done(t, e, got...) != 3 {
		t.Errorf("the other got %+v", got)
	}
	if _, err := e.Send(t.Context(), of("y")); err != nil {
		t.Fatal(err)
	}
	if purged, err := e.PurgeQueue(posthaste.WithActor(t.Context(), "ada"), jobs); err != nil || len(purged) != 2 || purged[0].Messages != 0 || purged[1].Messages != 1 {
		t.Errorf("purged %+v, %v", purged, err)
	}
	infos, err := e.Queues(t.Context(), jobs)
	if err != nil || len(infos[0].Subscriptions) != 2 {
		t.Errorf("the queue is told as %+v, %v", infos, err)
	}
	for _, what := range []string{"msg", "holders"} {
		if n := e.client.HLen(t.Context(), e.keys.of(jobs, what)).Val(); n != 0 {
			t.Errorf("%d are left in %s", n, what)
		}
	}
}

// What an end that was cut short left is let go of by upkeep, and its name can be used again.
func TestUnsubscribeCutShort(t *testing.T) {
	for name, goOn := range map[string]func(t *testing.T, e *Engine){
		"upkeep": func(t *testing.T, e *Engine) {
			if _, err := e.Maintain(t.Context(), posthaste.UpkeepSpace); err != nil {
				t.Fatal(err)
			}
		},
		"name": func(t *testing.T, e *Engine) { subscribe(t, e, second, posthaste.SubscriptionOptions{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := open(t, server.URL())
			create(t, e, posthaste.QueueOptions{})
			subscribe(t, e, second, posthaste.SubscriptionOptions{})
			for range 6 {
				send(t, e, 500)
			}
			for n := int64(0); n < 3000; {
				n += int64(done(t, e, receive(t, e, "", 1000)...))
			}
			held := receive(t, e, second, 1)
			all, err := e.registry.read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			s := all[jobs].subs[0]
			reply, err := leaveScript.run(t.Context(), e.client, s.keys, arguments{{"queue", all[jobs].numberArg}, {"rules", s.rules}, {"number", s.numberArg}})
			if err != nil || reply != "more" {
				t.Fatal(reply, err)
			}
			if _, err := e.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: s.ref(), Max: 1, Lease: time.Minute}); posthaste.CodeOf(err) != posthaste.CodeNotFound {
				t.Errorf("receiving from one that has ended: %v", err)
			}
			if done(t, e, held...) != 0 {
				t.Error("a delivery of the ended subscription was settled")
			}
			goOn(t, e)
			if name == "name" {
				if got := receive(t, e, second, 10); len(got) != 0 {
					t.Errorf("the new one got %d of the old one's", len(got))
				}
			}
			for _, what := range []string{"msg", "holders"} {
				if n := e.client.HLen(t.Context(), e.keys.of(jobs, what)).Val(); n != 0 {
					t.Errorf("%d are left in %s", n, what)
				}
			}
			send(t, e, 1)
		})
	}
}

// Dead letters are those of one subscription, and are replayed for it.
func TestDeadLettersOfSubscriptions(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{})
	subscribe(t, e, second, posthaste.SubscriptionOptions{})
	ids := send(t, e, 3)
	for _, of := range []string{"", second} {
		for _, d := range receive(t, e, of, 3) {
			if _, err := e.Settle(t.Context(), []posthaste.Settlement{{Delivery: d.ID, Outcome: posthaste.OutcomeDead, Error: "for " + d.Subscription}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var before posthaste.MessageID
	for i := range ids {
		got, err := e.DeadLetters(t.Context(), posthaste.DeadLetterFilter{Queue: jobs, Limit: 2, Before: before})
		if err != nil || len(got.Items) != 2 || got.Items[0].ID != ids[2-i] || got.Items[1].ID != ids[2-i] || got.Items[0].Error == got.Items[1].Error {
			t.Fatalf("page %d: %+v, %v", i, got.Items, err)
		}
		before = got.Items[1].ID
	}
	if got, err := e.DeadLetters(t.Context(), posthaste.DeadLetterFilter{Queue: jobs, Limit: 3}); err != nil || len(got.Items) != 2 || got.Next != ids[2] {
		t.Errorf("a message was parted: %+v, %d, %v", got.Items, got.Next, err)
	}
	filter := posthaste.DeadLetterFilter{Queue: jobs, Subscription: second}
	if got, err := e.DeadLetters(t.Context(), filter); err != nil || len(got.Items) != 3 || got.Items[0].Subscription != second {
		t.Errorf("of one there are %+v, %v", got.Items, err)
	}
	if were, err := e.Replay(posthaste.WithActor(t.Context(), "ada"), filter); err != nil || len(were.Items) != 3 {
		t.Errorf("replayed were %v, %v", were.Items, err)
	}
	if a, b := infoOf(t, e, posthaste.DefaultSubscription), infoOf(t, e, second); a.Dead != 3 || a.Depth != 0 || b.Dead != 0 || b.Depth != 3 {
		t.Errorf("then there are %+v and %+v", a, b)
	}
	if were, err := e.Discard(posthaste.WithActor(t.Context(), "ada"), posthaste.DeadLetterFilter{IDs: ids}); err != nil || len(were.Items) != 3 {
		t.Errorf("discarded were %v, %v", were.Items, err)
	}
	if got := receive(t, e, second, 10); len(got) != 3 || done(t, e, got...) != 3 {
		t.Errorf("after the replay came %d", len(got))
	}
	if n := e.client.HLen(t.Context(), e.keys.of(jobs, "msg")).Val(); n != 0 {
		t.Errorf("%d contents are left", n)
	}
}

// What a filter does not match stays a dead letter, also of a message that is another one,
// which matches; where one message is more than the limit, the next page comes after it.
func TestMatchingDeadLettersOfSubscriptions(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{})
	subscribe(t, e, second, posthaste.SubscriptionOptions{})
	ids := send(t, e, 2)
	for _, of := range []string{"", second} {
		for _, d := range receive(t, e, of, 2) {
			if _, err := e.Settle(t.Context(), []posthaste.Settlement{{Delivery: d.ID, Outcome: posthaste.OutcomeDead, Error: "for " + d.Subscription}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if were, err := e.Replay(posthaste.WithActor(t.Context(), "ada"), posthaste.DeadLetterFilter{Queue: jobs, Error: "for second", Before: ids[1]}); err != nil || len(were.Items) != 1 {
		t.Errorf("replayed were %v, %v", were.Items, err)
	}
	if a, b := infoOf(t, e, posthaste.DefaultSubscription), infoOf(t, e, second); a.Dead != 2 || a.Depth != 0 || b.Dead != 1 || b.Depth != 1 {
		t.Errorf("after the replay there are %+v and %+v", a, b)
	}
	if were, err := e.Discard(posthaste.WithActor(t.Context(), "ada"), posthaste.DeadLetterFilter{Queue: jobs, Limit: 1}); err != nil || len(were.Items) != 1 || were.Next != ids[1] {
		t.Errorf("discarded were %v, next is %d, %v", were.Items, were.Next, err)
	}
	if were, err := e.Discard(posthaste.WithActor(t.Context(), "ada"), posthaste.DeadLetterFilter{Error: "for second"}); err != nil || len(were.Items) != 0 {
		t.Errorf("discarded were %v, %v", were.Items, err)
	}
	if a, b := infoOf(t, e, posthaste.DefaultSubscription), infoOf(t, e, second); a.Dead != 1 || b.Dead != 0 || b.Depth != 1 {
		t.Errorf("in the end there are %+v and %+v", a, b)
	}
}

// Each subscription has its own count of a limit, and pauses hold for all.
func TestLimitsAndPausesOfSubscriptions(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{Fair: true, Limits: posthaste.QueueLimits{Concurrency: 2}})
	subscribe(t, e, second, posthaste.SubscriptionOptions{})
	sendKeys(t, e, "a", "a", "a", "b", "b", "b")
	held := map[string][]posthaste.RawDelivery{}
	for _, of := range []string{"", second} {
		if held[of] = receive(t, e, of, 10); len(held[of]) != 2 {
			t.Errorf("%q got %d", of, len(held[of]))
		}
	}
	if err := e.UpdateQueue(posthaste.WithActor(t.Context(), "ada"), jobs, posthaste.QueueUpdate{Reset: []string{"concurrency"}}); err != nil {
		t.Fatal(err)
	}
	if err := e.Pause(posthaste.WithActor(t.Context(), "ada"), posthaste.OfKey{Queue: jobs, Key: "a"}, posthaste.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{"", second} {
		got := receive(t, e, of, 10)
		for _, d := range got {
			if d.Key != "b" {
				t.Errorf("%q got a message of a paused key", of)
			}
		}
		held[of] = append(held[of], got...)
	}
	if err := e.Resume(posthaste.WithActor(t.Context(), "ada"), posthaste.OfKey{Queue: jobs, Key: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := e.Pause(posthaste.WithActor(t.Context(), "ada"), posthaste.OfQueue(jobs), posthaste.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{"", second} {
		if got := receive(t, e, of, 10); len(got) != 0 {
			t.Errorf("paused, %q got %d", of, len(got))
		}
	}
	if err := e.Resume(posthaste.WithActor(t.Context(), "ada"), posthaste.OfQueue(jobs)); err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{"", second} {
		if held[of] = append(held[of], receive(t, e, of, 10)...); len(held[of]) != 6 || done(t, e, held[of]...) != 6 {
			t.Errorf("%q got %d in all", of, len(held[of]))
		}
	}
}

// A purge takes from all subscriptions; at most once is so for each.
func TestPurgeAndAtMostOnceOfSubscriptions(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{Mode: posthaste.AtMostOnce})
	subscribe(t, e, second, posthaste.SubscriptionOptions{Filter: posthaste.Filter{Kinds: []string{"x"}}})
	for _, kind := range []string{"x", "y", "x", "y"} {
		if _, err := e.Send(t.Context(), posthaste.Message{Queue: jobs, Payload: 1, Kind: kind, Reference: kind}); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := receive(t, e, "", 1), receive(t, e, second, 1); len(a) != 1 || len(b) != 1 || a[0].MessageID != b[0].MessageID || a[0].ID == b[0].ID || string(b[0].Payload) != "1" {
		t.Fatalf("handed out %+v and %+v", a, b)
	}
	purged, err := e.PurgeQueue(posthaste.WithActor(t.Context(), "ada"), jobs)
	if err != nil || len(purged) != 2 || purged[0].Messages != 3 || purged[1].Messages != 1 || purged[1].Subscription != second {
		t.Errorf("purged %+v, %v", purged, err)
	}
	found, err := e.Messages(t.Context(), posthaste.MessageFilter{Queue: jobs, Reference: "x"})
	if err != nil || len(found.Items) != 2 || len(found.Items[0].Subscriptions) != 2 || found.Items[0].Subscriptions[1].State != posthaste.StateCancelled || found.Items[1].Subscriptions[1].State != posthaste.StateHandedOut {
		t.Errorf("found %+v, %v", found.Items, err)
	}
	if found, err := e.Messages(t.Context(), posthaste.MessageFilter{Queue: jobs, State: posthaste.StateHandedOut}); err != nil || len(found.Items) != 1 {
		t.Errorf("found as handed out %+v, %v", found.Items, err)
	}
	subscribe(t, e, "third", posthaste.SubscriptionOptions{From: posthaste.FromOldest})
	if got := receive(t, e, "third", 10); len(got) != 0 {
		t.Errorf("purged messages came again: %+v", got)
	}
}

// A subscription gets scheduled messages that were sent before it was made, if it asks for
// them.
func TestSubscribeToWhatIsScheduled(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{})
	var ids []posthaste.MessageID
	for _, delay := range []time.Duration{0, time.Hour} {
		some, err := posthaste.IDs(e.Send(t.Context(), posthaste.Message{Queue: jobs, Payload: 1, Delay: delay}))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, some...)
	}
	subscribe(t, e, second, posthaste.SubscriptionOptions{Scheduled: true})
	if s := infoOf(t, e, second); s.Depth != 1 {
		t.Errorf("%+v", s)
	}
	m, err := e.Message(t.Context(), ids[1])
	if err != nil || len(m.Subscriptions) != 2 || m.Subscriptions[1].State != posthaste.StateScheduled || !m.Subscriptions[1].DueAt.Equal(m.Subscriptions[0].DueAt) {
		t.Errorf("it is told as %+v, %v", m, err)
	}
	if told, err := e.Reschedule(posthaste.WithActor(t.Context(), "ada"), ids[1], time.Now().Add(-time.Minute)); err != nil || len(told) != 2 || !told[1].InTime {
		t.Errorf("moved: %+v, %v", told, err)
	}
	if got := receive(t, e, second, 10); len(got) != 1 || got[0].MessageID != ids[1] {
		t.Errorf("came %+v", got)
	}
}

// Workers of several subscriptions sleep, are woken, and each gets all that it wants.
func TestWorkersOfSubscriptions(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{BackoffBase: time.Millisecond, BackoffMax: time.Millisecond})
	subscribe(t, e, second, posthaste.SubscriptionOptions{})
	got := &handledBy{times: map[posthaste.MessageID]int{}}
	work(t, e, worker.Config{}, nil, func(w *worker.Worker) {
		worker.Handle(w, jobs, func(_ context.Context, d posthaste.Delivery[int]) error {
			if d.Attempt == 1 && d.Payload%10 == 3 {
				return fmt.Errorf("not at once")
			}
			got.handle(d.RawDelivery)
			return nil
		}, worker.WithSubscription(second))
	})
	for range 4 {
		send(t, e, 100)
	}
	until(t, "all are settled", func() bool {
		return infoOf(t, e, second).Done == 400 && infoOf(t, e, posthaste.DefaultSubscription).Done == 400
	})
	if n := e.client.HLen(t.Context(), e.keys.of(jobs, "msg")).Val(); n != 0 {
		t.Errorf("%d contents are left", n)
	}
}
