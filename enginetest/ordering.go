package enginetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var ordering = []test{
	{name: "OrderedKeysSideBySide", run: orderedKeys, needs: features{Ordered: true}},
	{name: "OrderedThroughRetries", run: orderedRetries, needs: features{Ordered: true}},
	{name: "OrderedThroughReleases", run: orderedReleases, needs: features{Ordered: true}},
	{name: "OrderedThroughLosses", run: orderedLosses, needs: features{Ordered: true}},
	{name: "OrderedDeadLetsItsKeyGo", run: orderedDeadLetsGo, needs: features{Ordered: true}},
	{name: "OrderedDeadStopsItsKey", run: orderedDeadStops, needs: features{Ordered: true, StopOnDead: true}},
	{name: "OrderedPausedKey", run: orderedPausedKey, needs: features{Ordered: true, Limits: true}},
	{name: "OrderedWorkers", run: orderedWorkers, needs: features{Ordered: true, OrderedRuns: true}},
	{name: "OrderedRefusals", run: orderedRefusals, needs: features{Ordered: true}},
	{name: "KeyConcurrencyStartsInOrder", run: keyConcurrencyInOrder, needs: features{Limits: true}},
}

// ordered creates the suite's queue as an ordered one.
func (s *suite) ordered(change func(*posthaste.QueueOptions)) {
	s.Helper()
	o := quick()
	o.Ordered = true
	if change != nil {
		change(&o)
	}
	s.create(o)
}

// received receives until it has one message of each of the keys, and fails if it gets
// another.
func (s *suite) received(keys ...string) (all map[string]posthaste.RawDelivery) {
	s.Helper()
	all = map[string]posthaste.RawDelivery{}
	s.until(fmt.Sprintf("a message of each of %q comes", keys), func() bool {
		for _, d := range s.receive(10, time.Minute) {
			if _, twice := all[d.Key]; twice || !slices.Contains(keys, d.Key) {
				s.Fatalf("message %d of key %s came, want one of each of %q", d.MessageID, d.Key, keys)
			}
			all[d.Key] = d
		}
		return len(all) == len(keys)
	})
	return all
}

// next receives one message and checks its id and attempt.
func (s *suite) next(id posthaste.MessageID, attempt int) posthaste.RawDelivery {
	s.Helper()
	var got []posthaste.RawDelivery
	s.until(fmt.Sprintf("message %d comes", id), func() bool {
		got = s.receive(10, time.Minute)
		return len(got) > 0
	})
	if len(got) != 1 || got[0].MessageID != id || got[0].Attempt != attempt {
		s.Fatalf("message %d of key %s came, attempt %d, with %d others; want message %d, attempt %d",
			got[0].MessageID, got[0].Key, got[0].Attempt, len(got)-1, id, attempt)
	}
	return got[0]
}

// nothing checks that no message can be received.
func (s *suite) nothing(why string) {
	s.Helper()
	for range 3 { // a call may find messages that only the next call returns
		if got := s.receive(10, time.Minute); len(got) > 0 {
			s.Fatalf("%s: message %d of key %s came, attempt %d", why, got[0].MessageID, got[0].Key, got[0].Attempt)
		}
	}
}

// orderedKeys: one message of each key at a time, in order; different keys run concurrently.
func orderedKeys(s *suite) {
	s.ordered(nil)
	ids := s.sendKeys("a", "a", "b", "a", "c", "b")
	first := s.received("a", "b", "c")
	if first["a"].MessageID != ids[0] || first["b"].MessageID != ids[2] || first["c"].MessageID != ids[4] {
		s.Fatalf("first came %d, %d and %d of %v", first["a"].MessageID, first["b"].MessageID, first["c"].MessageID, ids)
	}
	s.nothing("while the first of each key is running")
	s.settle(done, first["a"])
	second := s.next(ids[1], 1)
	s.nothing("while the second of one key is running")
	s.settle(done, first["b"])
	s.settle(done, s.next(ids[5], 1), second)
	s.settle(done, s.next(ids[3], 1), first["c"])
	s.nothing("at the end")
}

// orderedRetries: a failed message is retried before the next one of its key, and other keys
// do not wait for it.
func orderedRetries(s *suite) {
	s.ordered(nil)
	ids := s.sendKeys("a", "a", "b", "b")
	got := s.received("a", "b")
	s.settle(failed, got["a"])
	again := s.next(ids[0], 2)
	later := failed
	later.RetryAfter = time.Hour
	s.settle(later, again)
	s.settle(done, got["b"])
	s.settle(done, s.next(ids[3], 1))
	s.nothing("while the first waits for its retry")
	more := s.sendKeys("a", "b")
	s.settle(done, s.next(more[1], 1))
	s.nothing("behind a retry")
	s.wantState(ids[0], posthaste.StateRetrying)
	s.wantState(ids[1], posthaste.StateReady)
}

// orderedReleases: released messages are redelivered first, and their attempts do not count.
func orderedReleases(s *suite) {
	s.ordered(nil)
	ids := s.sendKeys("a", "a")
	for range 3 {
		s.settle(released, s.next(ids[0], 1))
	}
	later := released
	later.RetryAfter = time.Hour
	s.settle(done, s.next(ids[0], 1))
	s.settle(later, s.next(ids[1], 1))
	s.sendKeys("a")
	s.nothing("behind a message released for later")
}

// orderedLosses: messages of lost workers and expired leases are redelivered first.
func orderedLosses(s *suite) {
	s.ordered(nil)
	ids := s.sendKeys("a", "a")
	var got []posthaste.RawDelivery
	s.until("one comes", func() bool {
		got = s.receive(10, short)
		return len(got) > 0
	})
	if len(got) != 1 || got[0].MessageID != ids[0] {
		s.Fatalf("%d came", len(got))
	}
	again := s.next(ids[0], 2) // receiving rescues
	s.settle(released, again)
	w := s.register(short)
	var held []posthaste.RawDelivery
	s.until("a worker has it", func() bool {
		held = s.claim(w, 10)
		return len(held) > 0
	})
	if held[0].MessageID != ids[0] {
		s.Fatalf("the worker gets message %d first", held[0].MessageID)
	}
	s.rescue(len(held))
	first := s.next(ids[0], 3)
	s.nothing("beside the first")
	s.settle(done, first)
	s.until("the second comes", func() bool {
		got := s.receive(10, time.Minute)
		return len(got) == 1 && got[0].MessageID == ids[1]
	})
}

func orderedDeadLetsGo(s *suite) {
	s.ordered(func(o *posthaste.QueueOptions) { o.MaxAttempts = 2 })
	ids := s.sendKeys("a", "a", "a")
	s.settle(failed, s.next(ids[0], 1))
	s.settle(failed, s.next(ids[0], 2))
	s.wantState(ids[0], posthaste.StateDead)
	s.settle(hopeless, s.next(ids[1], 1))
	s.settle(done, s.next(ids[2], 1))
	s.nothing("at the end")
}

// orderedDeadStops: a dead letter blocks its key until it is replayed, and then runs first, or
// until it is discarded.
func orderedDeadStops(s *suite) {
	s.ordered(func(o *posthaste.QueueOptions) { o.StopOnDead = true })
	ids := s.sendKeys("a", "a", "a", "b")
	got := s.received("a", "b")
	s.settle(hopeless, got["a"])
	s.settle(done, got["b"])
	s.nothing("while its first message is dead")
	other := s.sendKeys("a", "b")
	s.settle(done, s.next(other[1], 1))
	s.nothing("while its first message is dead")
	if n, err := s.engine.Replay(posthaste.WithActor(s.ctx, "tester"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{ids[0]}}); err != nil || len(n.Items) != 1 {
		s.Fatalf("replaying: %v, %v", n.Items, err)
	}
	var replayed []posthaste.RawDelivery
	s.until("the dead one comes first", func() bool {
		replayed = s.receive(10, time.Minute)
		return len(replayed) > 0
	})
	if len(replayed) != 1 || replayed[0].MessageID != ids[0] {
		s.Fatalf("message %d came first, want %d", replayed[0].MessageID, ids[0])
	}
	s.settle(done, replayed[0])
	s.settle(hopeless, s.next(ids[1], 1))
	s.nothing("while its second message is dead")
	if n, err := s.engine.Discard(posthaste.WithActor(s.ctx, "tester"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{ids[1]}}); err != nil || len(n.Items) != 1 {
		s.Fatalf("discarding: %v, %v", n.Items, err)
	}
	s.settle(done, s.next(ids[2], 1))
	s.settle(done, s.next(other[0], 1))
}

func orderedPausedKey(s *suite) {
	s.ordered(nil)
	ids := s.sendKeys("a", "a", "b", "b")
	got := s.received("a", "b")
	s.must(s.engine.Pause(posthaste.WithActor(s.ctx, "tester"), posthaste.OfKey{Queue: s.queue, Key: "a"}, posthaste.PauseOptions{}))
	s.settle(failed, got["a"])
	s.settle(done, got["b"])
	s.settle(done, s.next(ids[3], 1))
	more := s.sendKeys("a", "b")
	s.settle(done, s.next(more[1], 1))
	s.nothing("of a paused key")
	s.must(s.engine.Resume(posthaste.WithActor(s.ctx, "tester"), posthaste.OfKey{Queue: s.queue, Key: "a"}))
	s.settle(done, s.next(ids[0], 2))
	s.settle(done, s.next(ids[1], 1))
	s.settle(done, s.next(more[0], 1))
}

// orderedWorkers: a worker may get several messages of a key, in order, to run one after the
// other. While it holds them, no other worker gets messages of that key. Messages that it did
// not finish are redelivered, in order, before later ones.
func orderedWorkers(s *suite) {
	s.ordered(nil)
	ids := s.sendKeys("a", "a", "a", "b", "b")
	one, other := s.register(time.Minute), s.register(time.Minute)
	held := s.claimed(one, 5)
	of := func(deliveries []posthaste.RawDelivery, key string) (ids []posthaste.MessageID) {
		for _, d := range deliveries {
			if d.Key == key {
				ids = append(ids, d.MessageID)
			}
		}
		return ids
	}
	if a, b := of(held, "a"), of(held, "b"); !slices.Equal(a, ids[:3]) || !slices.Equal(b, ids[3:]) {
		s.Fatalf("handed out are %v and %v of %v", a, b, ids)
	}
	last := s.sendKeys("a")[0]
	s.none(other)
	s.nothing("while a worker has all keys")
	for _, d := range held {
		switch d.MessageID {
		case ids[0], ids[3], ids[4]:
			s.settle(done, d)
		case ids[1]:
			s.settle(failed, d)
		case ids[2]:
			s.settle(released, d)
		}
	}
	var again []posthaste.RawDelivery
	s.until("the rest comes", func() bool {
		got := s.claim(other, 10)
		if len(again) > 0 && len(got) > 0 && again[len(again)-1].MessageID == last {
			s.Fatalf("message %d came after the last", got[0].MessageID)
		}
		again = append(again, got...)
		return len(again) >= 3
	})
	if got, want := of(again, "a"), []posthaste.MessageID{ids[1], ids[2], last}; !slices.Equal(got, want) {
		s.Fatalf("another worker gets %v, want %v", got, want)
	}
	if again[0].Attempt != 2 || again[1].Attempt != 1 {
		s.Errorf("the failed one comes with attempt %d, the released one with %d", again[0].Attempt, again[1].Attempt)
	}
	s.settle(done, again...)
}

func orderedRefusals(s *suite) {
	s.ordered(nil)
	for name, m := range map[string]posthaste.Message{
		"no key":     {},
		"a delay":    {Key: "a", Delay: time.Hour},
		"a time":     {Key: "a", SendAt: time.Now().Add(24 * time.Hour)},
		"a priority": {Key: "a", Priority: 1},
	} {
		m.Queue = s.queue
		if ids, err := posthaste.IDs(s.engine.Send(s.ctx, m)); err == nil {
			s.Errorf("%s is taken as %v", name, ids)
		} else if code := posthaste.CodeOf(err); code != posthaste.CodeInvalid {
			s.Errorf("%s: error %v with code %q, want %q", name, err, code, posthaste.CodeInvalid)
		}
	}
	for name, o := range map[string]posthaste.QueueOptions{
		"ordered at most once":   {Ordered: true, Mode: posthaste.AtMostOnce},
		"ordered and fair":       {Ordered: true, Fair: true},
		"stopping without order": {StopOnDead: true},
	} {
		s.wantCode(name, s.engine.CreateQueue(s.ctx, "bad", o), posthaste.CodeInvalid)
	}
	s.nothing("of a rejected queue")
}

// keyConcurrencyInOrder: if a key allows several running messages, they start in order, and
// one that waits for its retry does not block the others.
func keyConcurrencyInOrder(s *suite) {
	s.limited(posthaste.QueueLimits{KeyConcurrency: 2})
	ids := s.sendKeys("a", "a", "a", "a", "b")
	w := s.register(time.Minute)
	got := s.claimed(w, 3)
	if want := []posthaste.MessageID{ids[0], ids[1], ids[4]}; !slices.Equal(messageIDs(got), want) {
		s.Fatalf("first came %v, want %v", messageIDs(got), want)
	}
	s.none(w)
	later := failed
	later.RetryAfter = time.Hour
	for _, d := range got {
		if d.MessageID == ids[0] {
			s.settle(later, d)
		}
	}
	if next := s.claimed(w, 1)[0]; next.MessageID != ids[2] {
		s.Fatalf("after a failure message %d came, want %d", next.MessageID, ids[2])
	}
	s.none(w)
	for _, d := range got {
		if d.MessageID == ids[1] {
			s.settle(done, d)
		}
	}
	if next := s.claimed(w, 1)[0]; next.MessageID != ids[3] {
		s.Fatalf("after a success message %d came, want %d", next.MessageID, ids[3])
	}
}
