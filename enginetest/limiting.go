package enginetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var limiting = []test{
	{name: "Concurrency", run: concurrency, needs: features{Limits: true}},
	{name: "RateLimit", run: rateLimit, needs: features{Limits: true}},
	{name: "RateLimitHolds", run: rateLimitHolds, needs: features{Limits: true}},
	{name: "KeyConcurrency", run: keyConcurrency, needs: features{Limits: true}},
	{name: "KeyRateLimit", run: keyRateLimit, needs: features{Limits: true}},
	{name: "KeyRateLimitInOrder", run: keyRateLimitInOrder, needs: features{Limits: true, Ordered: true}},
	{name: "LimitsOfEachSubscription", run: limitsOfEachSubscription, needs: features{Limits: true, Subscriptions: true}},
	{name: "LowRates", run: lowRates, needs: features{Limits: true}},
	{name: "LimitsChange", run: limitsChange, needs: features{Limits: true}},
	{name: "FairKeys", run: fairKeys, needs: features{Limits: true}},
	{name: "PausedKey", run: pausedKey, needs: features{Limits: true}},
	{name: "PausedKeyOfALaterSubscription", run: pausedKeyOfALaterSubscription, needs: features{Limits: true, Subscriptions: true}},
	{name: "BadLimits", run: badLimits, needs: features{Limits: true}},
	{name: "CreatedAgainWithLimits", run: createdAgainWithLimits, needs: features{Limits: true}},
}

// createdAgainWithLimits: a service that creates its queues at startup can restart, whatever
// other queues exist, even if an operator has added limits.
func createdAgainWithLimits(s *suite) {
	s.must(s.engine.CreateQueue(s.ctx, s.queue+"-other", quick()))
	limits := map[string]posthaste.QueueLimits{
		"one": {Concurrency: 4}, "rate": {RateLimit: posthaste.Rate{Limit: 5}}, "key": {KeyConcurrency: 1},
		"all": {Concurrency: 4, RateLimit: posthaste.Rate{Limit: 5, Burst: 2}, KeyConcurrency: 1, KeyRateLimit: posthaste.Rate{Limit: 3}},
	}
	for name, l := range limits {
		o := quick()
		o.Limits = l
		queue := s.queue + "-" + name
		s.must(s.engine.CreateQueue(s.ctx, queue, o))
		if err := s.engine.CreateQueue(s.ctx, queue, o); err != nil {
			s.Errorf("making a queue with %+v a second time: %v", l, err)
		}
		if err := s.engine.CreateQueue(s.ctx, queue, quick()); err != nil {
			s.Errorf("making a queue with %+v a second time without limits: %v", l, err)
		}
	}
	o := quick()
	o.Limits.Concurrency = 5
	s.wantCode("another limit", s.engine.CreateQueue(s.ctx, s.queue+"-one", o), posthaste.CodeConflict)
	more := limits["one"]
	more.RateLimit = posthaste.Rate{Limit: 9}
	s.must(s.engine.UpdateQueue(posthaste.WithActor(s.ctx, "ada"), s.queue+"-one", posthaste.QueueUpdate{Options: posthaste.QueueOptions{Limits: more}}))
	o.Limits = limits["one"]
	if err := s.engine.CreateQueue(s.ctx, s.queue+"-one", o); err != nil {
		s.Errorf("making a queue that an operator gave one more limit: %v", err)
	}
}

// keysOf claims the available messages of a subscription and returns their keys.
func (s *suite) keysOf(w posthaste.WorkerID, subscription string) (keys []string) {
	s.Helper()
	for range 4 { // one claim may return fewer than are available
		request := s.request(w, 10)
		request.Subscription = subscription
		reply, err := s.engine.Claim(s.ctx, request)
		s.must(err)
		for _, d := range reply.Deliveries {
			keys = append(keys, d.Key)
		}
	}
	return keys
}

// limited creates the suite's queue with limits.
func (s *suite) limited(l posthaste.QueueLimits) {
	s.Helper()
	o := quick()
	o.Limits = l
	s.create(o)
}

// sendKeys sends one message for each key, in order.
func (s *suite) sendKeys(keys ...string) []posthaste.MessageID {
	s.Helper()
	var messages []posthaste.Message
	for _, key := range keys {
		messages = append(messages, posthaste.Message{Queue: s.queue, Key: key, Payload: key})
	}
	ids, err := posthaste.IDs(s.engine.Send(s.ctx, messages...))
	s.must(err)
	return ids
}

// atLimit checks that a claim finds the queue's own limits reached.
func (s *suite) atLimit(w posthaste.WorkerID) posthaste.ClaimReply {
	s.Helper()
	reply, err := s.engine.Claim(s.ctx, s.request(w, 10))
	s.must(err)
	if len(reply.Deliveries) != 0 || !reply.AtLimit || !reply.Limits {
		s.Fatalf("at its limit a queue hands out %d, says AtLimit %v and Limits %v", len(reply.Deliveries), reply.AtLimit, reply.Limits)
	}
	return reply
}

// unburnt checks that waiting for a limit did not count an attempt.
func (s *suite) unburnt(deliveries []posthaste.RawDelivery) {
	s.Helper()
	for _, d := range deliveries {
		if d.Attempt != 1 || len(d.Story) != 0 {
			s.Errorf("message %d comes with attempt %d and attempts %v", d.MessageID, d.Attempt, d.Story)
		}
	}
}

func concurrency(s *suite) {
	s.limited(posthaste.QueueLimits{Concurrency: 3})
	s.send(8)
	one, other, lost := s.register(time.Minute), s.register(time.Minute), s.register(time.Minute)
	held := s.claimed(one, 2)
	gone := s.claim(lost, 10)
	if len(gone) != 1 {
		s.Fatalf("beside 2 that are in flight %d are handed out, want 1", len(gone))
	}
	s.atLimit(other)
	if got := s.receive(10, time.Minute); len(got) != 0 {
		s.Fatalf("%d are received over the limit", len(got))
	}
	s.settle(done, held[0])
	got := s.claimed(other, 1)
	s.atLimit(one)
	s.unburnt(got)
	// The place of a lost worker is freed by its rescue, whether it unregistered or missed its
	// heartbeats.
	s.must(s.engine.Unregister(s.ctx, lost))
	s.rescue(1)
	s.claimed(s.register(short), 1)
	s.rescue(1)
	s.claimed(other, 1)
	s.atLimit(other)
}

func rateLimit(s *suite) {
	s.limited(posthaste.QueueLimits{RateLimit: posthaste.Rate{Limit: 2, Per: time.Hour, Burst: 3}})
	s.send(8)
	w := s.register(time.Minute)
	got := append(s.receive(2, time.Minute), s.claim(w, 10)...)
	if len(got) != 3 {
		s.Fatalf("%d are handed out at once, want a burst of 3", len(got))
	}
	s.settle(done, got...)
	if reply := s.atLimit(w); reply.NextDue < 20*time.Minute || reply.NextDue > 30*time.Minute {
		s.Errorf("the next one is told for %s from now, want half an hour", reply.NextDue)
	}
	if got := s.receive(10, time.Minute); len(got) != 0 {
		s.Errorf("%d are received over the limit", len(got))
	}
}

func rateLimitHolds(s *suite) {
	const rate, burst = 100, 10
	s.limited(posthaste.QueueLimits{RateLimit: posthaste.Rate{Limit: rate, Burst: burst}})
	n := len(s.send(60))
	w := s.register(time.Minute)
	var all []posthaste.RawDelivery
	began := time.Now()
	s.until("all are handed out", func() bool {
		got := s.claim(w, 10)
		all = append(all, got...)
		if most := rate*time.Since(began).Seconds() + burst; float64(len(all)) > most {
			s.Fatalf("%d were handed out after %s, %.0f may be", len(all), time.Since(began), most)
		}
		return len(all) == n
	})
	s.unburnt(all)
}

func keyConcurrency(s *suite) {
	s.limited(posthaste.QueueLimits{KeyConcurrency: 2})
	ids := s.sendKeys("a", "a", "a", "a", "b", "a")
	w := s.register(time.Minute)
	got := s.claimed(w, 3)
	if want := []posthaste.MessageID{ids[0], ids[1], ids[4]}; !slices.Equal(messageIDs(got), want) {
		s.Fatalf("messages %v are handed out, want %v", messageIDs(got), want)
	}
	s.none(w)
	s.settle(done, got[0])
	next := s.claimed(w, 1)
	if next[0].MessageID != ids[2] {
		s.Errorf("after one of a key message %d came, want the next one, %d", next[0].MessageID, ids[2])
	}
	s.unburnt(next)
	s.none(w)
}

func keyRateLimit(s *suite) {
	s.limited(posthaste.QueueLimits{KeyRateLimit: posthaste.Rate{Limit: 1, Per: time.Hour, Burst: 2}})
	s.sendKeys("a", "a", "a", "b", "a", "b", "b")
	w := s.register(time.Minute)
	got := s.claimed(w, 4)
	count := map[string]int{}
	for _, d := range got {
		count[d.Key]++
	}
	if count["a"] != 2 || count["b"] != 2 {
		s.Errorf("of the keys are handed out %v, want 2 each", count)
	}
	s.settle(done, got...)
	s.none(w)
}

// keyRateLimitInOrder: an ordered queue respects the rate limit per key, whether a claim could
// hand out several messages of a key or the previous one must be settled first.
func keyRateLimitInOrder(s *suite) {
	s.ordered(func(o *posthaste.QueueOptions) {
		o.Limits.KeyRateLimit = posthaste.Rate{Limit: 1, Per: time.Hour, Burst: 1}
	})
	ids := s.sendKeys("a", "a", "a", "b")
	w := s.register(time.Minute)
	got := s.claimed(w, 2)
	if want := []posthaste.MessageID{ids[0], ids[3]}; !slices.Equal(messageIDs(got), want) {
		s.Fatalf("messages %v are handed out, want %v", messageIDs(got), want)
	}
	s.none(w)
	s.settle(done, got...)
	s.none(w)
	s.nothing("while the rate of the keys lets nothing through")
}

// limitsOfEachSubscription: the limits apply to each subscription separately, in total and per
// key.
func limitsOfEachSubscription(s *suite) {
	for name, c := range map[string]struct {
		limits posthaste.QueueLimits
		want   int // for each subscription
	}{
		"concurrency":     {posthaste.QueueLimits{Concurrency: 3}, 3},
		"rate":            {posthaste.QueueLimits{RateLimit: posthaste.Rate{Limit: 1, Per: time.Hour, Burst: 3}}, 3},
		"key concurrency": {posthaste.QueueLimits{KeyConcurrency: 2}, 4},
		"key rate":        {posthaste.QueueLimits{KeyRateLimit: posthaste.Rate{Limit: 1, Per: time.Hour, Burst: 2}}, 4},
	} {
		s.queue = strings.ReplaceAll(name, " ", "-")
		s.limited(c.limits)
		s.must(s.engine.Subscribe(posthaste.WithActor(s.ctx, "ada"), s.queue, "second", posthaste.SubscriptionOptions{}))
		s.sendKeys("a", "a", "a", "a", "b", "b", "b", "b")
		w := s.register(time.Minute)
		for _, subscription := range []string{posthaste.DefaultSubscription, "second"} {
			if handed := len(s.keysOf(w, subscription)); handed != c.want {
				s.Errorf("%s: subscription %s is handed out %d, want %d whatever the other has", name, subscription, handed, c.want)
			}
		}
	}
}

// lowRates: a rate of a few messages in a long time hands out one at a time, and not all that
// it allows in that time, unless a burst is set.
func lowRates(s *suite) {
	for i, c := range []struct {
		rate  posthaste.Rate
		burst int           // its effective burst
		next  time.Duration // until the next one
	}{
		{posthaste.Rate{Limit: 1, Per: time.Minute}, 1, time.Minute},
		{posthaste.Rate{Limit: 60, Per: time.Hour}, 1, time.Minute},
		{posthaste.Rate{Limit: 1, Per: time.Second}, 1, time.Second},
		{posthaste.Rate{Limit: 60, Per: time.Hour, Burst: 5}, 5, time.Minute},
		{posthaste.Rate{Limit: 2, Per: time.Second}, 2, time.Second},
	} {
		s.queue = fmt.Sprint("low-", i)
		s.limited(posthaste.QueueLimits{RateLimit: c.rate})
		queues, err := s.engine.Queues(s.ctx, s.queue)
		s.must(err)
		if is := queues[0].Options.Limits.RateLimit.Burst; is != c.burst {
			s.Errorf("%s has a burst of %d, want %d", c.rate, is, c.burst)
		}
		s.send(8)
		w := s.register(time.Minute)
		if got := s.claim(w, 10); len(got) != c.burst {
			s.Fatalf("%s hands out %d at once, want %d", c.rate, len(got), c.burst)
		}
		if c.next == time.Second {
			continue // a busy machine may be later than that
		}
		if reply := s.atLimit(w); reply.NextDue > c.next || reply.NextDue < c.next/2 {
			s.Errorf("%s tells the next one for %s from now, want %s", c.rate, reply.NextDue, c.next)
		}
	}
}

func limitsChange(s *suite) {
	s.create(quick())
	s.send(10)
	w := s.register(time.Minute)
	s.must(s.engine.UpdateQueue(posthaste.WithActor(s.ctx, "ada"), s.queue, posthaste.QueueUpdate{Options: posthaste.QueueOptions{Limits: posthaste.QueueLimits{Concurrency: 2}}}))
	s.claimed(w, 2)
	s.atLimit(w)
	limits := posthaste.QueueLimits{Concurrency: 5, RateLimit: posthaste.Rate{Limit: 120, Per: time.Minute, Burst: 7}}
	s.must(s.engine.UpdateQueue(posthaste.WithActor(s.ctx, "ada"), s.queue, posthaste.QueueUpdate{Options: posthaste.QueueOptions{Limits: limits}}))
	queues, err := s.engine.Queues(s.ctx, s.queue)
	s.must(err)
	if is := queues[0].Options.Limits; is.Concurrency != 5 || !is.RateLimit.Is(limits.RateLimit) {
		s.Errorf("limits %+v are shown, want %+v", is, limits)
	}
	s.claimed(w, 3)
	s.atLimit(w)
	s.must(s.engine.UpdateQueue(posthaste.WithActor(s.ctx, "ada"), s.queue, posthaste.QueueUpdate{Reset: []string{"concurrency", "rate_limit"}}))
	s.claimed(w, 5)
	s.wantCode("limits of no queue", s.engine.UpdateQueue(posthaste.WithActor(s.ctx, "ada"), "nowhere", posthaste.QueueUpdate{Options: posthaste.QueueOptions{Limits: limits}}), posthaste.CodeNotFound)
	actions := s.actions()
	if len(actions) != 3 || actions[0].Action != "update" || actions[0].By != "ada" {
		s.Errorf("recorded are %+v", actions)
	}
}

func fairKeys(s *suite) {
	o := quick()
	o.Fair = true
	s.create(o)
	var keys []string
	for i := range 300 {
		keys = append(keys, "large")
		if i >= 290 {
			keys = append(keys, fmt.Sprint("small ", i%3))
		}
	}
	s.sendKeys(keys...)
	w := s.register(time.Minute)
	large, small := 0, 0
	s.until("the small ones are handed out", func() bool {
		for _, d := range s.claim(w, 20) {
			if d.Key == "large" {
				large++
			} else {
				small++
			}
		}
		return small == 10
	})
	if large > 150 {
		s.Errorf("before 10 messages of other keys %d of one came", large)
	}
}

func pausedKey(s *suite) {
	o := quick()
	o.Fair = true
	s.create(o)
	s.must(s.engine.Pause(posthaste.WithActor(s.ctx, "ada"), posthaste.OfKey{Queue: s.queue, Key: "a"}, posthaste.PauseOptions{}))
	s.must(s.engine.Pause(posthaste.WithActor(s.ctx, "ada"), posthaste.OfKey{Queue: s.queue, Key: "a"}, posthaste.PauseOptions{}))
	ids := s.sendKeys("a", "b", "a")
	w := s.register(time.Minute)
	got := s.claimed(w, 1)
	if got[0].MessageID != ids[1] {
		s.Fatalf("message %d came, want that of the other key", got[0].MessageID)
	}
	s.none(w)
	queues, err := s.engine.Queues(s.ctx, s.queue)
	s.must(err)
	if !slices.Equal(queues[0].PausedKeys, []string{"a"}) {
		s.Errorf("paused are %v", queues[0].PausedKeys)
	}
	s.must(s.engine.Resume(posthaste.WithActor(s.ctx, "bob"), posthaste.OfKey{Queue: s.queue, Key: "a"}))
	s.claimed(w, 2)
	actions := s.actions()
	if len(actions) != 2 || actions[0].Action != "resume_key" || actions[0].By != "bob" || actions[1].Action != "pause_key" {
		s.Errorf("recorded are %+v", actions)
	}
	s.wantCode("pausing a key of no queue", s.engine.Pause(posthaste.WithActor(s.ctx, "ada"), posthaste.OfKey{Queue: "nowhere", Key: "a"}, posthaste.PauseOptions{}), posthaste.CodeNotFound)
	s.wantCode("pausing no key", s.engine.Pause(posthaste.WithActor(s.ctx, "ada"), posthaste.OfKey{Queue: s.queue, Key: ""}, posthaste.PauseOptions{}), posthaste.CodeInvalid)
	s.must(s.engine.CreateQueue(s.ctx, "plain", quick()))
	s.wantCode("pausing a key of a queue that does not look at keys", s.engine.Pause(posthaste.WithActor(s.ctx, "ada"), posthaste.OfKey{Queue: "plain", Key: "a"}, posthaste.PauseOptions{}), posthaste.CodeUnsupported)
}

func pausedKeyOfALaterSubscription(s *suite) {
	o := quick()
	o.Fair = true
	s.create(o)
	s.must(s.engine.Pause(posthaste.WithActor(s.ctx, "ada"), posthaste.OfKey{Queue: s.queue, Key: "a"}, posthaste.PauseOptions{}))
	s.must(s.engine.Subscribe(posthaste.WithActor(s.ctx, "ada"), s.queue, "later", posthaste.SubscriptionOptions{}))
	s.sendKeys("a", "b")
	w := s.register(time.Minute)
	if got := s.keysOf(w, "later"); !slices.Equal(got, []string{"b"}) {
		s.Errorf("keys %v were handed out, and a is paused", got)
	}
	s.must(s.engine.Resume(posthaste.WithActor(s.ctx, "bob"), posthaste.OfKey{Queue: s.queue, Key: "a"}))
	if got := s.keysOf(w, "later"); !slices.Equal(got, []string{"a"}) {
		s.Errorf("keys %v were handed out as a was resumed", got)
	}
}

func badLimits(s *suite) {
	for name, l := range map[string]posthaste.QueueLimits{
		"a negative concurrency":         {Concurrency: -1},
		"a rate below zero":              {RateLimit: posthaste.Rate{Limit: -1}},
		"a burst without a rate":         {RateLimit: posthaste.Rate{Burst: 5}},
		"a rate in no time":              {KeyRateLimit: posthaste.Rate{Limit: 1, Per: -time.Second}},
		"more of a key than of all":      {Concurrency: 1, KeyConcurrency: 2},
		"a key's rate above the queue's": {RateLimit: posthaste.Rate{Limit: 1}, KeyRateLimit: posthaste.Rate{Limit: 2}},
	} {
		s.wantCode(name, s.engine.CreateQueue(s.ctx, s.queue, posthaste.QueueOptions{Limits: l}), posthaste.CodeInvalid)
	}
	queues, err := s.engine.Queues(s.ctx)
	s.must(err)
	if len(queues) != 0 {
		s.Errorf("after bad limits there are %d queues", len(queues))
	}
}
