package enginetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var withdrawing = []test{
	{name: "Cancel", run: cancel, needs: features{Withdrawal: true}},
	{name: "Reschedule", run: reschedule, needs: features{Withdrawal: true, Exact: true}},
	{name: "FarTimes", run: farTimes, needs: features{Withdrawal: true}},
	{name: "UnusualIDs", run: unusualIDs, needs: features{Ordered: true, Withdrawal: true}},
	{name: "Purge", run: purge, needs: features{Withdrawal: true}},
	{name: "LastSubscription", run: lastSubscription},
	{name: "Subscriptions", run: subscriptions, needs: features{Subscriptions: true}},
	{name: "SubscribedAgain", run: subscribedAgain, needs: features{Subscriptions: true}},
	{name: "Filter", run: filter, needs: features{Subscriptions: true}},
	{name: "SubscribeRefusals", run: subscribeRefusals, needs: features{Subscriptions: true}},
	{name: "MaxLag", run: maxLag, needs: features{Subscriptions: true, MaxLag: true}},
	{name: "Doctor", run: doctor},
	{name: "Vitals", run: vitals},
	{name: "Sinks", run: sinks},
}

// receiveAll receives all messages of a subscription and returns their ids, ascending.
func (s *suite) receiveAll(subscription string) (ids []posthaste.MessageID) {
	s.Helper()
	for {
		reply, err := s.engine.Receive(s.ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: s.queue, Subscription: subscription}, Max: 100, Lease: time.Minute})
		got := reply.Deliveries
		s.must(err)
		if len(got) == 0 {
			slices.Sort(ids)
			return ids
		}
		for _, d := range got {
			ids = append(ids, d.MessageID)
		}
	}
}

// receives checks which messages a subscription has. An engine that is not exact may hand out a message
// that was just sent to a later call.
func (s *suite) receives(what, subscription string, want []posthaste.MessageID) {
	s.Helper()
	got := s.receiveAll(subscription)
	if len(got) < len(want) && !s.engine.Capabilities().Exact {
		s.until(fmt.Sprintf("%s: %d messages come", what, len(want)), func() bool {
			got = append(got, s.receiveAll(subscription)...)
			return len(got) >= len(want)
		})
		slices.Sort(got)
	}
	s.want(what, got, want)
}

func (s *suite) want(what string, got, want []posthaste.MessageID) {
	s.Helper()
	if !slices.Equal(got, want) {
		s.Errorf("%s: %v, want %v", what, got, want)
	}
}

func cancel(s *suite) {
	s.create(quick())
	ids := s.send(5)
	later, err := posthaste.IDs(s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Payload: 1, Delay: time.Hour}))
	s.must(err)
	told := func(id posthaste.MessageID, inTime bool, state posthaste.State) {
		s.Helper()
		got, err := s.engine.Cancel(posthaste.WithActor(s.ctx, "ada"), id)
		s.must(err)
		if want := []posthaste.Withdrawal{{Subscription: posthaste.DefaultSubscription, InTime: inTime, State: state, Requested: state == posthaste.StateRunning}}; !slices.Equal(got, want) {
			s.Errorf("cancelling message %d answered %+v, want %+v", id, got, want)
		}
		info, err := s.engine.Message(s.ctx, id)
		s.must(err)
		if info.Subscriptions[0].State != state {
			s.Errorf("message %d is %s, want %s", id, info.Subscriptions[0].State, state)
		}
	}
	told(ids[1], true, posthaste.StateCancelled)
	told(ids[3], true, posthaste.StateCancelled)
	told(ids[1], true, posthaste.StateCancelled)
	told(later[0], true, posthaste.StateCancelled)
	s.receives("received", "", []posthaste.MessageID{ids[0], ids[2], ids[4]})
	told(ids[0], false, posthaste.StateRunning)
	_, err = s.engine.Cancel(posthaste.WithActor(s.ctx, "ada"), 1<<40)
	s.wantCode("an unknown id", err, posthaste.CodeNotFound)
	actions := s.actions()
	if len(actions) != 4 || actions[0].By != "ada" || actions[0].Action != "cancel" || actions[0].MessageID != ids[0] {
		s.Errorf("on record is %+v", actions)
	}
}

func reschedule(s *suite) {
	s.create(quick())
	ids := s.send(2)
	move := func(id posthaste.MessageID, at time.Time) bool {
		s.Helper()
		got, err := s.engine.Reschedule(posthaste.WithActor(s.ctx, "ada"), id, at)
		s.must(err)
		return len(got) == 1 && got[0].InTime
	}
	if !move(ids[0], time.Now().Add(time.Hour)) {
		s.Error("it was not in time")
	}
	s.receives("before its time", "", ids[1:])
	if move(ids[1], time.Now()) {
		s.Error("a handed out message was moved")
	}
	before := time.Now()
	if !move(ids[0], before.Add(-time.Second)) {
		s.Error("it was not in time the second time")
	}
	moved := s.receive(1, time.Minute)
	s.want("at its time", messageIDs(moved), ids[:1])
	if late := moved[0].DueAt.Sub(before); late < -time.Second || late > time.Minute {
		s.Errorf("a message moved to the present is due at %s", moved[0].DueAt)
	}
	_, err := s.engine.Reschedule(posthaste.WithActor(s.ctx, "ada"), 1<<40, time.Now())
	s.wantCode("an unknown id", err, posthaste.CodeNotFound)
}

// farTimes: a time that programs cannot show is rejected, because it would break every list
// that contains it. A time in the past means now.
func farTimes(s *suite) {
	s.create(quick())
	// A time long ago must not make the other messages fail.
	past := make([]posthaste.Message, 100)
	for i := range past {
		past[i] = posthaste.Message{Queue: s.queue, Payload: i, SendAt: time.Date(1900+i, 1, 1, 0, 0, 0, 0, time.UTC)}
	}
	_, err := s.engine.Send(s.ctx, past...)
	s.must(err)
	s.settle(done, s.claimed(s.register(time.Minute), len(past))...)
	last := time.Date(9999, 12, 30, 23, 59, 59, 0, time.UTC)
	ids, err := posthaste.IDs(s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Payload: 1, SendAt: last}, posthaste.Message{Queue: s.queue, Payload: 2, Delay: math.MaxInt64}))
	s.must(err)
	for _, far := range []time.Time{time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -10*3600)), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(250000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		for what, do := range map[string]func() error{
			"sending": func() error {
				_, err := s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Payload: 1, SendAt: far})
				return err
			},
			"rescheduling": func() error {
				_, err := s.engine.Reschedule(posthaste.WithActor(s.ctx, "ada"), ids[0], far)
				return err
			},
		} {
			var e *posthaste.Error
			if err := do(); !errors.As(err, &e) || e.Code != posthaste.CodeInvalid || e.Field != "send_at" {
				s.Errorf("%s at %s ends with %v, want it refused with field send_at", what, far, err)
			}
		}
	}
	_, err = s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Payload: 1, SendAt: time.Date(-44, 3, 15, 0, 0, 0, 0, time.UTC)})
	s.wantCode("a time before the year 1", err, posthaste.CodeInvalid)
	for _, id := range ids {
		info, err := s.engine.Message(s.ctx, id)
		s.must(err)
		if _, err := json.Marshal(info.Subscriptions[0].DueAt); err != nil {
			s.Errorf("message %d is due at %s: %v", id, info.Subscriptions[0].DueAt, err)
		}
	}
	// A handler's delay is recorded, however long it is.
	more := s.send(1)
	s.settle(posthaste.Settlement{Outcome: posthaste.OutcomeRetried, Error: "no", RetryAfter: math.MaxInt64}, s.receive(1, time.Minute)...)
	s.wantState(more[0], posthaste.StateRetrying)
	_, err = s.engine.Reschedule(posthaste.WithActor(s.ctx, "ada"), ids[0], time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC))
	s.must(err)
	if age := s.counted().OldestAge; age > time.Hour {
		s.Errorf("a message moved to 1999 waits for %s", age)
	}
}

// unusualIDs: any number that is not an id is unknown and changes nothing. Engines use some
// numbers internally.
func unusualIDs(s *suite) {
	s.ordered(nil)
	sent, err := posthaste.IDs(s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Payload: 1, Key: "a"}, posthaste.Message{Queue: s.queue, Payload: 2, Key: "a"}))
	s.must(err)
	s.settle(failed, s.receive(1, time.Minute)...)
	for _, n := range []int64{0, -1, 1 << 51, math.MaxInt64, math.MaxInt64 - 4095, math.MinInt64} {
		_, err := s.engine.Message(s.ctx, posthaste.MessageID(n))
		s.wantCode(fmt.Sprint("message ", n), err, posthaste.CodeNotFound)
		_, err = s.engine.Replay(posthaste.WithActor(s.ctx, "ada"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{posthaste.MessageID(n)}})
		s.wantCode(fmt.Sprint("replaying ", n), err, posthaste.CodeNotFound)
		_, err = s.engine.Cancel(posthaste.WithActor(s.ctx, "ada"), posthaste.MessageID(n))
		s.wantCode(fmt.Sprint("cancelling ", n), err, posthaste.CodeNotFound)
		_, err = s.engine.Reschedule(posthaste.WithActor(s.ctx, "ada"), posthaste.MessageID(n), time.Now().Add(time.Hour))
		s.wantCode(fmt.Sprint("rescheduling ", n), err, posthaste.CodeNotFound)
		for _, outcome := range []posthaste.Outcome{posthaste.OutcomeDone, posthaste.OutcomeRetried, posthaste.OutcomeReleased} {
			told, err := s.engine.Settle(s.ctx, []posthaste.Settlement{{Delivery: posthaste.DeliveryID(n), Outcome: outcome, Error: "no"}})
			if err != nil && posthaste.CodeOf(err) != posthaste.CodeInvalid || err == nil && told[0].Settled {
				s.Errorf("settling delivery %d answers %+v, %v", n, told, err)
			}
		}
		told, err := s.engine.Extend(s.ctx, posthaste.ExtendRequest{Deliveries: []posthaste.DeliveryID{posthaste.DeliveryID(n)}, Lease: time.Minute})
		if err != nil && posthaste.CodeOf(err) != posthaste.CodeInvalid || err == nil && told[0].Settled {
			s.Errorf("extending delivery %d answers %+v, %v", n, told, err)
		}
	}
	var came []posthaste.MessageID
	s.until("both came", func() bool {
		got := s.receive(10, time.Minute)
		came = append(came, messageIDs(got)...)
		s.settle(done, got...)
		return len(came) >= len(sent)
	})
	s.want("in order", came, sent)
}

func purge(s *suite) {
	s.create(quick())
	first := s.send(3)
	w := s.register(time.Minute)
	held := s.claimed(w, 1)
	_, err := s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Payload: 1, Delay: time.Hour})
	s.must(err)
	got, err := s.engine.PurgeQueue(posthaste.WithActor(s.ctx, "ada"), s.queue)
	s.must(err)
	if want := []posthaste.Purged{{Subscription: posthaste.DefaultSubscription, Messages: 3}}; !slices.Equal(got, want) {
		s.Errorf("it purged %+v, want %+v", got, want)
	}
	after := s.send(1)
	s.receives("after it", "", after)
	if info, err := s.engine.Message(s.ctx, first[2]); err != nil || info.Subscriptions[0].State != posthaste.StateCancelled {
		s.Errorf("a purged message is %+v, %v", info.Subscriptions, err)
	}
	results, err := s.engine.Settle(s.ctx, []posthaste.Settlement{{Delivery: held[0].ID, Outcome: posthaste.OutcomeDone}})
	s.must(err)
	if !results[0].Settled {
		s.Error("a message handed out before cannot be settled")
	}
	_, err = s.engine.PurgeQueue(posthaste.WithActor(s.ctx, "ada"), "nowhere")
	s.wantCode("an unknown queue", err, posthaste.CodeNotFound)
}

func lastSubscription(s *suite) {
	s.create(quick())
	s.must(s.engine.Subscribe(posthaste.WithActor(s.ctx, "ada"), s.queue, posthaste.DefaultSubscription, posthaste.SubscriptionOptions{}))
	s.wantCode("ending the only one", s.engine.Unsubscribe(posthaste.WithActor(s.ctx, "ada"), s.queue, posthaste.DefaultSubscription, posthaste.DropOptions{}), posthaste.CodeConflict)
	s.wantCode("ending an unknown one", s.engine.Unsubscribe(posthaste.WithActor(s.ctx, "ada"), s.queue, "unknown", posthaste.DropOptions{}), posthaste.CodeNotFound)
	s.wantCode("ending one of an unknown queue", s.engine.Unsubscribe(posthaste.WithActor(s.ctx, "ada"), "nowhere", "x", posthaste.DropOptions{}), posthaste.CodeNotFound)
	s.wantCode("making one of an unknown queue", s.engine.Subscribe(posthaste.WithActor(s.ctx, "ada"), "nowhere", "x", posthaste.SubscriptionOptions{}), posthaste.CodeNotFound)
}

func subscriptions(s *suite) {
	s.create(quick())
	before := s.send(2)
	s.must(s.engine.Subscribe(posthaste.WithActor(s.ctx, "ada"), s.queue, "now", posthaste.SubscriptionOptions{}))
	s.must(s.engine.Subscribe(posthaste.WithActor(s.ctx, "ada"), s.queue, "oldest", posthaste.SubscriptionOptions{From: posthaste.FromOldest}))
	after := s.send(2)
	all := slices.Concat(before, after)
	s.receives("default", "", all)
	s.receives("now", "now", after)
	got, err := s.engine.Cancel(posthaste.WithActor(s.ctx, "ada"), all[0])
	s.must(err)
	if want := []posthaste.Withdrawal{{Subscription: "default", State: posthaste.StateRunning, Requested: true}, {Subscription: "oldest", InTime: true, State: posthaste.StateCancelled}}; !slices.Equal(got, want) {
		s.Errorf("cancelling told %+v, want %+v", got, want)
	}
	s.receives("oldest", "oldest", all[1:])
	s.must(s.engine.Unsubscribe(posthaste.WithActor(s.ctx, "ada"), s.queue, "now", posthaste.DropOptions{}))
	_, err = s.engine.Receive(s.ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: s.queue, Subscription: "now"}, Max: 1, Lease: time.Minute})
	s.wantCode("receiving for one that has ended", err, posthaste.CodeNotFound)
	infos, err := s.engine.Queues(s.ctx, s.queue)
	s.must(err)
	if len(infos) != 1 || len(infos[0].Subscriptions) != 2 {
		s.Errorf("the queue is reported as %+v", infos)
	}
}

// A subscription is removed, and another one is made with its name. What the first did with a
// message that still waits for another subscription does not count for the second: if the second
// fails, too, the message is retried.
func subscribedAgain(s *suite) {
	s.create(quick())
	receive := func() []posthaste.RawDelivery {
		reply, err := s.engine.Receive(s.ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: s.queue, Subscription: "audit"}, Max: 10, Lease: time.Minute})
		s.must(err)
		return reply.Deliveries
	}
	sent := s.send(1) // the default subscription does not receive it
	subscribeAndFail := func(after time.Duration) {
		s.must(s.engine.Subscribe(posthaste.WithActor(s.ctx, "ada"), s.queue, "audit", posthaste.SubscriptionOptions{From: posthaste.FromOldest}))
		var got []posthaste.RawDelivery
		s.until("the message comes", func() bool { got = receive(); return len(got) > 0 })
		if len(got) != 1 || got[0].MessageID != sent[0] || got[0].Attempt != 1 {
			s.Fatalf("%+v came, want attempt 1 of message %s", got, sent[0])
		}
		s.settle(posthaste.Settlement{Outcome: posthaste.OutcomeRetried, RetryAfter: after, Error: "no"}, got...)
	}
	subscribeAndFail(time.Hour)
	s.must(s.engine.Unsubscribe(posthaste.WithActor(s.ctx, "ada"), s.queue, "audit", posthaste.DropOptions{}))
	subscribeAndFail(time.Millisecond)
	s.until("the message is retried", func() bool {
		got := receive()
		return len(got) == 1 && got[0].MessageID == sent[0] && got[0].Attempt == 2
	})
}

func filter(s *suite) {
	s.create(quick())
	s.must(s.engine.Subscribe(posthaste.WithActor(s.ctx, "ada"), s.queue, "some", posthaste.SubscriptionOptions{
		Filter: posthaste.Filter{Kinds: []string{"paid", "made"}, Headers: map[string][]string{"region": {"eu"}}}}))
	var sent, want []posthaste.MessageID
	for _, kind := range []string{"paid", "made", "gone"} {
		for _, region := range []string{"eu", "us"} {
			for _, delay := range []time.Duration{0, time.Microsecond} {
				ids, err := posthaste.IDs(s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Payload: 1, Kind: kind, Headers: map[string]string{"region": region}, Delay: delay}))
				s.must(err)
				sent = append(sent, ids...)
				if kind != "gone" && region == "eu" {
					want = append(want, ids...)
				}
			}
		}
	}
	s.receives("received", "some", want)
	s.receives("default", "", sent)
	infos, err := s.engine.Queues(s.ctx, s.queue)
	s.must(err)
	for _, info := range infos[0].Subscriptions {
		f := info.Filter
		filtered := slices.Equal(slices.Sorted(slices.Values(f.Kinds)), []string{"made", "paid"}) && maps.EqualFunc(f.Headers, map[string][]string{"region": {"eu"}}, slices.Equal)
		if info.MaxLag != 0 || filtered != (info.Name == "some") || !filtered && len(f.Kinds)+len(f.Headers) > 0 {
			s.Errorf("subscription %s is reported with %+v and %s", info.Name, f, info.MaxLag)
		}
	}
}

func subscribeRefusals(s *suite) {
	s.create(quick())
	some := posthaste.SubscriptionOptions{Filter: posthaste.Filter{Kinds: []string{"y"}}}
	s.must(s.engine.Subscribe(posthaste.WithActor(s.ctx, "ada"), s.queue, "a", some))
	s.must(s.engine.Subscribe(posthaste.WithActor(s.ctx, "ada"), s.queue, "a", some))
	for what, o := range map[string]posthaste.SubscriptionOptions{
		"other options": {}, "another filter": {Filter: posthaste.Filter{Kinds: []string{"x"}}},
	} {
		s.wantCode(what, s.engine.Subscribe(posthaste.WithActor(s.ctx, "ada"), s.queue, "a", o), posthaste.CodeConflict)
	}
	for what, o := range map[string]posthaste.SubscriptionOptions{
		"from": {From: "tomorrow"}, "contradiction": {From: posthaste.FromOldest, Scheduled: true}, "max_lag": {MaxLag: -time.Second},
		"headers": {Filter: posthaste.Filter{Headers: map[string][]string{"x": {}}}}, "kind": {Filter: posthaste.Filter{Kinds: []string{"y", ""}}},
	} {
		s.wantCode("bad "+what, s.engine.Subscribe(posthaste.WithActor(s.ctx, "ada"), s.queue, "b", o), posthaste.CodeInvalid)
	}
	s.wantCode("a bad name", s.engine.Subscribe(posthaste.WithActor(s.ctx, "ada"), s.queue, "No Good", posthaste.SubscriptionOptions{}), posthaste.CodeInvalid)
	infos, err := s.engine.Queues(s.ctx, s.queue)
	s.must(err)
	if len(infos[0].Subscriptions) != 2 {
		s.Errorf("a rejected subscription exists: %+v", infos[0].Subscriptions)
	}
}

func maxLag(s *suite) {
	s.create(quick())
	short := posthaste.SubscriptionOptions{MaxLag: 36 * time.Hour}
	s.must(s.engine.Subscribe(posthaste.WithActor(s.ctx, "ada"), s.queue, "short", short))
	s.must(s.engine.Subscribe(posthaste.WithActor(s.ctx, "ada"), s.queue, "short", short))
	s.wantCode("another bound", s.engine.Subscribe(posthaste.WithActor(s.ctx, "ada"), s.queue, "short", posthaste.SubscriptionOptions{MaxLag: time.Hour}), posthaste.CodeConflict)
	infos, err := s.engine.Queues(s.ctx, s.queue)
	s.must(err)
	for _, info := range infos[0].Subscriptions {
		if want := map[string]time.Duration{"short": short.MaxLag}[info.Name]; info.MaxLag != want {
			s.Errorf("subscription %s is reported with a bound of %s, want %s", info.Name, info.MaxLag, want)
		}
	}
}

func vitals(s *suite) {
	before, err := s.engine.Vitals(s.ctx)
	s.must(err)
	worker, err := s.engine.Register(s.ctx, posthaste.WorkerInfo{Name: "vital", Lease: time.Minute})
	s.must(err)
	v, err := s.engine.Vitals(s.ctx)
	s.must(err)
	if v.Workers != before.Workers+1 || v.OverdueWorkers != 0 || v.HeartbeatAge < 0 || v.SlotsFree < v.SlotsWanted {
		s.Errorf("with one more worker: %+v, and before %+v", v, before)
	}
	s.must(s.engine.Unregister(s.ctx, worker))
}

// sinks: the registration of a worker says to which external systems it delivers.
func sinks(s *suite) {
	want := []posthaste.WorkerSink{{Queue: s.queue, Subscription: posthaste.DefaultSubscription, Destination: `Kafka at "bröker":9092`}, {Queue: s.queue, Subscription: "audit"}}
	relay, err := s.engine.Register(s.ctx, posthaste.WorkerInfo{Name: "relay", Lease: time.Minute, Sinks: want})
	s.must(err)
	plain, err := s.engine.Register(s.ctx, posthaste.WorkerInfo{Name: "plain", Lease: time.Minute})
	s.must(err)
	beat := func(id posthaste.WorkerID) {
		_, err := s.engine.Heartbeat(s.ctx, posthaste.Heartbeat{Worker: id})
		s.must(err)
	}
	beat(relay)
	beat(plain)
	workers, err := s.engine.Workers(s.ctx)
	s.must(err)
	found := map[posthaste.WorkerID][]posthaste.WorkerSink{}
	for _, w := range workers {
		found[w.ID] = w.Sinks
	}
	if got, ok := found[plain]; !slices.Equal(found[relay], want) || len(got) > 0 || !ok {
		s.Errorf("the workers have the sinks %+v and %+v, want %+v and none", found[relay], got, want)
	}
	s.must(s.engine.Unregister(s.ctx, relay))
	s.must(s.engine.Unregister(s.ctx, plain))
}

func doctor(s *suite) {
	s.create(quick())
	s.send(3)
	found, err := s.engine.Doctor(s.ctx)
	s.must(err)
	for _, f := range found {
		// The settings are the database's own: tests may run without durability.
		if f.Fault && f.Check != "settings" || f.Check == "" || f.Message == "" {
			s.Errorf("found in good health: %+v", f)
		}
	}
}
