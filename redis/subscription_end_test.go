package redis

import (
	"fmt"
	"slices"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
)

// leaveABit starts to end the default subscription of the queue, and releases a part of its
// messages.
func leaveABit(t *testing.T, e *Engine) {
	t.Helper()
	all, err := e.registry.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	q := all[jobs]
	if reply, err := leaveScript.run(t.Context(), e.client, q.keys, arguments{{"queue", q.numberArg}, {"rules", q.rules}, {"number", "@"}}); err != nil || reply != "more" {
		t.Fatalf("it was to let go of a part: %v, %v", reply, err)
	}
}

// The subscription that a queue is born with is shut from the moment in which its end
// begins: who knew it before hands out, settles and replays nothing of it, wherever its end
// has come to.
func TestShutWhileItEnds(t *testing.T) {
	holds := func(what string) func(t *testing.T, e *Engine) string {
		return func(t *testing.T, e *Engine) string {
			create(t, e, posthaste.QueueOptions{})
			dead := send(t, e, 500)
			var died []posthaste.Settlement
			for _, d := range receive(t, e, "", 500) {
				died = append(died, posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeDead, Error: "no"})
			}
			if _, err := e.Settle(t.Context(), died); err != nil {
				t.Fatal(err)
			}
			send(t, e, 500)
			var held []posthaste.Settlement
			for _, d := range receive(t, e, "", 500) {
				held = append(held, posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeRetried, Error: "no"})
			}
			send(t, e, 300)
			w := register(t, e)
			claim(t, e, w, 1, 300)
			waits := send(t, e, 500)
			subscribe(t, e, second, posthaste.SubscriptionOptions{})
			send(t, e, 500)
			o := another(t, e)
			leaveABit(t, e)
			q := o.registry.byName[jobs]
			switch what {
			case "claim":
				if reply, err := claimScript.run(t.Context(), o.client, q.keys, arguments{{"number", q.numberArg}, {"rules", q.rules}, {"most", 10}, {"priorities", "0123"}, {"idle", "1"}, {"worker", ""}, {"claim", ""}, {"lease", 1000000}, {"once", ""}, {"kinds", ""}}); err != nil || reply != "gone" {
					return fmt.Sprintf("handed out: %v, %v", reply, err)
				}
				if _, err := o.Claim(t.Context(), posthaste.ClaimRequest{Worker: w, Number: 2, QueueRef: posthaste.QueueRef{Queue: jobs}, Max: 10}); posthaste.CodeOf(err) != posthaste.CodeNotFound {
					return fmt.Sprintf("claiming: %v", err)
				}
			case "settle":
				results, err := o.Settle(t.Context(), held)
				if err != nil || len(results) != 500 || slices.ContainsFunc(results, func(r posthaste.SettleResult) bool { return r.Settled }) {
					return fmt.Sprintf("settled: %d, %v", len(results), err)
				}
			case "extend":
				results, err := o.Extend(t.Context(), posthaste.ExtendRequest{Deliveries: []posthaste.DeliveryID{held[0].Delivery}, Lease: time.Hour})
				if err != nil || results[0].Settled {
					return fmt.Sprintf("extended: %+v, %v", results, err)
				}
			case "rescue":
				if err := o.client.ZAdd(t.Context(), o.keys.of(jobs, "leases"), goredis.Z{Score: 1, Member: w.String()}).Err(); err != nil {
					t.Fatal(err)
				}
				if reply, err := rescueScript.run(t.Context(), o.client, q.keys, arguments{{"number", q.numberArg}, {"rules", q.rules}, {"most", rescueMost}}); err != nil || reply != "gone" {
					return fmt.Sprintf("rescued: %v, %v", reply, err)
				}
				if lost, err := o.Maintain(t.Context(), posthaste.UpkeepRescue); err != nil || lost.Rescued != 0 {
					return fmt.Sprintf("rescued: %d, %v", lost.Rescued, err)
				}
			case "beat":
				reply, err := beatScript.run(t.Context(), o.client, q.keys, arguments{{"number", q.numberArg}, {"worker", w.String()}, {"lease", 1000000}, {"name", ""}, {"begin", ""}, {"kinds", ""}, {"paused", ""}, {"revision", ""}})
				if err != nil || reply != "gone" {
					return fmt.Sprintf("kept a lease: %v, %v", reply, err)
				}
			case "bury":
				if were, err := o.Replay(posthaste.WithActor(t.Context(), "ada"), posthaste.DeadLetterFilter{IDs: dead}); posthaste.CodeOf(err) != posthaste.CodeNotFound || len(were.Items) != 0 {
					return fmt.Sprintf("replayed were %d, %v", len(were.Items), err)
				}
			case "withdraw":
				for _, id := range waits { // of some the contents are still there
					reply, _, err := o.tryQueue(t.Context(), jobs, func(q *queue) (any, error) {
						return withdrawScript.run(t.Context(), o.client, q.keys, arguments{{"number", q.numberArg}, {"rules", q.rules}, {"action", "cancel"}, {"id", place(int64(id))}, {"due", 0}})
					})
					if err != nil || reply != int64(0) {
						return fmt.Sprintf("cancelled: %v, %v", reply, err)
					}
				}
			}
			if _, err := e.Maintain(t.Context(), posthaste.UpkeepSpace); err != nil {
				return err.Error()
			}
			if got := receive(t, e, second, 1000); len(got) != 500 || done(t, e, got...) != 500 {
				return fmt.Sprintf("the other got %d of 500", len(got))
			}
			for _, what := range []string{"msg", "holders", "st", "run", "due", "dead", "leases"} {
				if n := e.client.Exists(t.Context(), e.keys.of(jobs, what)).Val(); n != 0 {
					return what + " is left"
				}
			}
			return ""
		}
	}
	for what, p := range map[string]patch{
		"claim":    {&claimScript, " or own[4] or", " or"},
		"settle":   {&settleScript, " or own[2] or", " or"},
		"extend":   {&extendScript, "own[1] and not own[2]", "true"},
		"rescue":   {&rescueScript, " or own[2] or", " or"},
		"beat":     {&beatScript, " or own[3] then return 'gone'", " then return 'gone'"},
		"bury":     {&buryScript, "if call('HGET', TALLY, 'first') then return were end", ""},
		"withdraw": {&withdrawScript, "if call('HGET', TALLY, 'first') then return 0 end", ""},
	} {
		t.Run(what, func(t *testing.T) { rule(t, holds(what), p) })
	}
}

// The caller who creates a subscription is recorded even if filling it with older messages is
// cut short; the next claim continues the filling.
func TestSubscribeCutShort(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{})
	send(t, e, 3)
	msg := e.keys.of(jobs, "msg")
	if err := e.client.HSet(t.Context(), msg, "1", "").Err(); err != nil { // cannot be decoded
		t.Fatal(err)
	}
	if err := e.Subscribe(posthaste.WithActor(t.Context(), "ada"), jobs, second, posthaste.SubscriptionOptions{From: posthaste.FromOldest}); err == nil {
		t.Fatal("it was not cut short")
	}
	actions, err := e.Actions(t.Context(), posthaste.ActionFilter{})
	if err != nil || len(actions) != 2 || actions[0].Action != "subscribe" || actions[0].By != "ada" {
		t.Errorf("noted are %+v, %v", actions, err)
	}
	if err := e.client.HDel(t.Context(), msg, "1").Err(); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, e, second, 10); len(got) != 3 {
		t.Errorf("it got %d of 3", len(got))
	}
}

// Upkeep goes on with ends bit by bit; one that cannot go on keeps nothing else from being
// rescued or ended.
func TestUpkeepOfEnds(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	const other = "other"
	for _, name := range []string{jobs, other} {
		if err := e.CreateQueue(t.Context(), name, posthaste.QueueOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := e.Subscribe(posthaste.WithActor(t.Context(), "ada"), name, second, posthaste.SubscriptionOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		send(t, e, 500)
	}
	all, err := e.registry.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if more, err := e.leave(t.Context(), all[jobs].subs[0], 1); err != nil || !more {
		t.Fatalf("one step ended it: %v", err)
	}
	if err := e.client.Set(t.Context(), e.keys.of(other, "holders"), "broken", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.leave(t.Context(), all[other].subs[0], 1); err == nil {
		t.Fatal("a broken subscription was ended")
	}
	if _, err := e.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: jobs}, Max: 1, Lease: time.Microsecond}); err != nil {
		t.Fatal(err)
	}
	if reply, err := e.Maintain(t.Context(), posthaste.UpkeepSpace); err == nil || reply.Rescued != 1 {
		t.Errorf("%d were rescued, and the error is %v", reply.Rescued, err)
	}
	if all, err = e.registry.read(t.Context()); err != nil || len(all[jobs].leaving) != 0 || len(all[other].leaving) != 1 {
		t.Errorf("%d and %d are ending, %v", len(all[jobs].leaving), len(all[other].leaving), err)
	}
	if err := e.client.Del(t.Context(), e.keys.of(other, "holders")).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Maintain(t.Context(), posthaste.UpkeepSpace); err != nil {
		t.Error(err)
	}
	if all, err = e.registry.read(t.Context()); err != nil || len(all[other].leaving) != 0 {
		t.Errorf("it is ending still, %v", err)
	}
}

// A number that was enrolled for a subscription which is not there is free again, and who
// enrolled it and is slow makes none of that number.
func TestStrayNumbers(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		is, err := e.enroll(t.Context(), enrolled(jobs, second))
		if err != nil {
			t.Fatal(err)
		}
		subscribe(t, e, "third", posthaste.SubscriptionOptions{})
		all, err := e.registry.read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fields := func() int64 { return e.client.HLen(t.Context(), e.keys.queues()).Val() }
		before := fields()
		if _, err := e.Maintain(t.Context(), posthaste.UpkeepSpace); err != nil || fields() != before {
			t.Fatalf("what may be on its way was struck: %v", err)
		}
		if err := e.removeStrayEnrollments(t.Context(), all[jobs], 0); err != nil || fields() != before-1 {
			t.Fatalf("%d of %d are left, %v", fields(), before, err)
		}
		number, at, _ := field{is: is}.parts()
		q := all[jobs]
		reply, err := subscribeScript.run(t.Context(), e.client, e.keys.subscription(jobs, second, false), arguments{{"queue", q.numberArg}, {"name", second}, {"number", number}, {"enrolled", at}, {"options", fromOldest}, {"older", ""}, {"most", 50}})
		if err != nil || reply != "late" {
			return fmt.Sprintf("one came that the registry does not know: %v, %v", reply, err)
		}
		subscribe(t, e, second, posthaste.SubscriptionOptions{})
		return ""
	}, patch{&expireEnrollmentScript, "call('HSET', META, 'ended', text(math.max(tonumber(enrolled), tonumber(meta[3] or -1))))", ""})
}

// Purged messages do not reach a subscription that is being filled with older messages.
func TestPurgedWhileFilled(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		cutShort(t, e, 1, 5)
		if _, _, err := e.together(t.Context(), asideScript, jobs); err != nil {
			t.Fatal(err)
		}
		s := e.registry.byName[jobs].subs[0]
		names := append(append([]string{}, s.keys...), e.keys.of(jobs, "st"), e.keys.of(jobs, "due"))
		if _, err := fillScript.run(t.Context(), e.client, names, arguments{{"number", s.numberArg}, {"rules", s.rules}, {"filter", ""}, {"scheduled", ""}, {"letters", "@"}}); err != nil { // another process has begun to fill it
			t.Fatal(err)
		}
		if _, err := e.cancelAside(t.Context(), jobs); err != nil {
			t.Fatal(err)
		}
		if a, b := len(receive(t, e, "", 10)), len(receive(t, e, second, 10)); a != b {
			return fmt.Sprintf("%d came, and to the other %d", a, b)
		}
		return ""
	}, patch{&asideScript, "then return 'fill' end", "then local _ end"})
}

// A purge that was cut short, and one that meets a subscription which is not filled yet,
// purge what that would get, too.
func TestPurgeBesideFilling(t *testing.T) {
	t.Parallel()
	for _, cut := range []bool{true, false} {
		e := open(t, server.URL())
		create(t, e, posthaste.QueueOptions{})
		send(t, e, 5)
		if cut {
			if reply, _, err := e.together(t.Context(), asideScript, jobs); err != nil || reply != int64(1) {
				t.Fatal(reply, err)
			}
		}
		if _, _, err := e.subscribe(t.Context(), jobs, second, fromOldest, "1"); err != nil {
			t.Fatal(err)
		}
		if !cut {
			purged, err := e.PurgeQueue(posthaste.WithActor(t.Context(), "ada"), jobs)
			if err != nil || len(purged) != 2 || purged[0].Messages != 5 || purged[1].Messages != 5 {
				t.Errorf("purged %+v, %v", purged, err)
			}
		}
		if got := receive(t, e, second, 10); len(got) != 0 {
			t.Errorf("cut short %v: %d purged messages came", cut, len(got))
		}
	}
}

// An engine that knew a queue before finds messages of later subscriptions by a reference,
// settles for the queue that has its number now, and keeps no lease of an ended subscription.
func TestKnowledgeOfOldIsRenewed(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{})
	w := register(t, e)
	send(t, e, 1)
	o := another(t, e)
	subscribe(t, o, second, posthaste.SubscriptionOptions{})
	if _, err := o.Send(t.Context(), posthaste.Message{Queue: jobs, Reference: "r1"}); err != nil {
		t.Fatal(err)
	}
	if n := done(t, o, receive(t, o, "", 2)...); n != 2 {
		t.Fatal(n)
	}
	if err := o.Unsubscribe(posthaste.WithActor(t.Context(), "ada"), jobs, "default", posthaste.DropOptions{}); err != nil {
		t.Fatal(err)
	}
	if found, err := e.Messages(t.Context(), posthaste.MessageFilter{Queue: jobs, Reference: "r1"}); err != nil || len(found.Items) != 1 {
		t.Errorf("found by the reference are %d, %v", len(found.Items), err)
	}

	subscribe(t, o, "third", posthaste.SubscriptionOptions{})
	ref := posthaste.QueueRef{Queue: jobs, Subscription: "third"}
	if _, err := e.Claim(t.Context(), posthaste.ClaimRequest{Worker: w, Number: 1, QueueRef: ref, Max: 1}); err != nil {
		t.Fatal(err)
	}
	if err := e.Unsubscribe(posthaste.WithActor(t.Context(), "ada"), jobs, "third", posthaste.DropOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Heartbeat(t.Context(), posthaste.Heartbeat{Worker: w}); err != nil || e.leases.joined[w][ref] {
		t.Errorf("a lease of an ended subscription is still kept, %v", err)
	}

	if err := o.DropQueue(t.Context(), jobs, posthaste.DropOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := o.client.HSet(t.Context(), o.keys.queues(), "#next", maxQueues+1).Err(); err != nil { // numbers are given again
		t.Fatal(err)
	}
	if err := o.CreateQueue(t.Context(), "other", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Send(t.Context(), posthaste.Message{Queue: "other"}); err != nil {
		t.Fatal(err)
	}
	got, err := o.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "other"}, Max: 1, Lease: time.Hour})
	if err != nil || len(got.Deliveries) != 1 || e.registry.byNo[number(int64(got.Deliveries[0].ID))].name != jobs {
		t.Fatalf("%+v, %v", got, err)
	}
	if n := done(t, e, got.Deliveries...); n != 1 {
		t.Error("what the new queue of that number handed out was not settled")
	}
}

// Once all numbers were given they go around: the one of a queue that was dropped last is
// not given next, for others may not have heard of that yet.
func TestNumbersGoAround(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		given := func(name string) int64 {
			t.Helper()
			if err := e.CreateQueue(t.Context(), name, posthaste.QueueOptions{}); err != nil {
				t.Fatal(err)
			}
			ids, err := posthaste.IDs(e.Send(t.Context(), posthaste.Message{Queue: name}))
			if err != nil {
				t.Fatal(err)
			}
			return int64(number(int64(ids[0])))
		}
		drop := func(name string) {
			t.Helper()
			if err := e.DropQueue(t.Context(), name, posthaste.DropOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		one, two, three := given("one"), given("two"), given("three")
		drop("one")
		drop("three")
		if err := e.client.HSet(t.Context(), e.keys.queues(), "#next", maxQueues).Err(); err != nil {
			t.Fatal(err)
		}
		last, first := given("last"), given("first")
		drop("first")
		if next := given("next"); last != maxQueues || first != one || next != three || two == next {
			return fmt.Sprintf("after %d, %d and %d were given %d, %d, dropped, and %d", one, two, three, last, first, next)
		}
		return ""
	}, patch{&enrollScript, "redis.call('HSET', QUEUES, '#next', next + 1)", "redis.call('HSET', QUEUES, '#next', math.min(next, most) + 1)"})
}
