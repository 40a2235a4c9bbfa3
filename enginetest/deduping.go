package enginetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

func (s *suite) sendOnce(key string, window time.Duration) posthaste.MessageID {
	s.Helper()
	ids, err := posthaste.IDs(s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, DedupeKey: key, DedupeWindow: window}))
	s.must(err)
	return ids[0]
}

// Within the window, the second send returns the first one's id, even if many messages are
// sent together. After the window, a new message is created.
func dedupeKeySendsOnce(s *suite) {
	s.create(posthaste.QueueOptions{})
	a, b := s.sendOnce("a", 0), s.sendOnce("b", time.Hour)
	if a == b || s.sendOnce("a", 0) != a || s.sendOnce("b", 0) != b {
		s.Errorf("a is %d and b is %d, and sent again they are others", a, b)
	}
	many := make([]posthaste.Message, 100)
	for i := range many {
		many[i] = posthaste.Message{Queue: s.queue, Payload: i, DedupeKey: fmt.Sprint("k", i%10)}
	}
	many[50].DedupeKey = "a"
	many[51].DedupeKey = ""
	sent, err := s.engine.Send(s.ctx, many...)
	ids, err := posthaste.IDs(sent, err)
	s.must(err)
	for i, id := range ids {
		want := ids[i%10]
		if duplicate := i >= 10 && i != 51; sent[i].Duplicate != duplicate {
			s.Errorf("message %d of the batch: duplicate is %v, want %v", i, sent[i].Duplicate, duplicate)
		}
		switch i {
		case 50:
			want = a
		case 51:
			want = id
		}
		if id != want {
			s.Errorf("message %d of the batch is %d, want %d", i, id, want)
		}
	}
	if ids[51] == ids[1] {
		s.Errorf("a message without a key is %d, as the one with key k1", ids[51])
	}
	w := s.register(time.Minute)
	if got := s.claimed(w, 13); len(got) != 13 { // a, b, ten keys and one without
		s.Errorf("%d messages were stored, want 13", len(got))
	}
	s.none(w)
	short := s.sendOnce("short", 20*time.Millisecond)
	s.until("the window is over", func() bool { return s.sendOnce("short", time.Hour) != short })
	if _, err := s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, DedupeWindow: time.Hour}); posthaste.CodeOf(err) != posthaste.CodeInvalid {
		s.Errorf("a window without a key: %v", err)
	}
}

// A withdrawn message releases its key: sending with it again creates a new message. A message
// that waits, is handed out, done or dead keeps its key.
func dedupeKeyIsFreeAgain(s *suite) {
	s.create(posthaste.QueueOptions{MaxAttempts: 2, BackoffBase: time.Microsecond, BackoffMax: time.Microsecond})
	w := s.register(time.Minute)
	first := s.sendOnce("k", 0)
	again := func(when string, free bool) {
		s.Helper()
		next := s.sendOnce("k", 0)
		if (next != first) != free {
			s.Errorf("%s: sent again it is %d, and was %d", when, next, first)
		}
		first = next
	}
	settled := func(outcome posthaste.Outcome) {
		s.Helper()
		s.settle(posthaste.Settlement{Outcome: outcome, Error: "x"}, s.claimed(w, 1)...)
	}
	cancelled := func() {
		s.Helper()
		_, err := s.engine.Cancel(posthaste.WithActor(s.ctx, "ada"), first)
		s.must(err)
	}
	again("it waits", false)
	cancelled()
	again("it is cancelled", true)
	_, err := s.engine.PurgeQueue(posthaste.WithActor(s.ctx, "ada"), s.queue)
	s.must(err)
	again("it is purged", true)
	settled(posthaste.OutcomeRetried)
	again("it waits for its retry", false)
	cancelled()
	again("its retry is cancelled", true)
	settled(posthaste.OutcomeRetried)
	_, err = s.engine.PurgeQueue(posthaste.WithActor(s.ctx, "ada"), s.queue)
	s.must(err)
	again("its retry is purged", true)
	settled(posthaste.OutcomeDead)
	again("it is dead", false)
	_, err = s.engine.Discard(posthaste.WithActor(s.ctx, "ada"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{first}})
	s.must(err)
	again("it is discarded", true)
	held := s.claimed(w, 1)
	again("it is handed out", false)
	s.settle(posthaste.Settlement{Outcome: posthaste.OutcomeDone}, held...)
	again("it is done", false)
	s.none(w)
	// In one call, the first message with the key is sent, and the others get its id.
	other := s.sendOnce("other", 0)
	_, err = s.engine.Cancel(posthaste.WithActor(s.ctx, "ada"), other)
	s.must(err)
	ids, err := posthaste.IDs(s.engine.Send(s.ctx, slices.Repeat([]posthaste.Message{{Queue: s.queue, DedupeKey: "other"}}, 3)...))
	s.must(err)
	if ids[0] == other || ids[1] != ids[0] || ids[2] != ids[0] {
		s.Errorf("of one call they are %v, and the cancelled one is %d", ids, other)
	}
	s.claimed(w, 1)
	s.none(w)
}

// The key is released when the message was withdrawn from all subscriptions.
func dedupeKeyOfSubscriptions(s *suite) {
	s.create(posthaste.QueueOptions{})
	s.must(s.engine.Subscribe(posthaste.WithActor(s.ctx, "ada"), s.queue, "other", posthaste.SubscriptionOptions{}))
	w := s.register(time.Minute)
	a, b := s.sendOnce("a", 0), s.sendOnce("b", 0)
	s.settle(posthaste.Settlement{Outcome: posthaste.OutcomeDone}, s.claimed(w, 2)...)
	_, err := s.engine.Cancel(posthaste.WithActor(s.ctx, "ada"), a) // for the other one
	s.must(err)
	if next := s.sendOnce("a", 0); next != a {
		s.Errorf("one subscription has handled it, and sent again it is %d, not %d", next, a)
	}
	if next := s.sendOnce("b", 0); next != b {
		s.Errorf("it waits in one subscription, and sent again it is %d, not %d", next, b)
	}
	c := s.sendOnce("c", 0)
	_, err = s.engine.Cancel(posthaste.WithActor(s.ctx, "ada"), c)
	s.must(err)
	if next := s.sendOnce("c", 0); next == c {
		s.Error("both have it taken back, and sent again it is the same")
	}
	d := s.sendOnce("d", 0)
	_, err = s.engine.Cancel(posthaste.WithActor(s.ctx, "ada"), d)
	s.must(err)
	s.must(s.engine.Subscribe(posthaste.WithActor(s.ctx, "ada"), s.queue, "later", posthaste.SubscriptionOptions{}))
	if next := s.sendOnce("d", 0); next == d {
		s.Error("it was taken back before a subscription was made that never had it, and sent again it is the same")
	}
}

// Of concurrent senders one creates the message, and all get the same id. Batches in opposite
// orders do not deadlock.
func dedupeKeyAtOnce(s *suite) {
	s.create(posthaste.QueueOptions{})
	const senders, keys = 8, 20
	answers := make([][]posthaste.MessageID, senders)
	var all sync.WaitGroup
	for i := range senders {
		all.Go(func() {
			messages := make([]posthaste.Message, keys)
			for k := range messages {
				messages[k] = posthaste.Message{Queue: s.queue, DedupeKey: fmt.Sprint("key ", k)}
			}
			if i%2 == 1 {
				slices.Reverse(messages)
			}
			ids, err := posthaste.IDs(s.engine.Send(s.ctx, messages...))
			if err != nil {
				s.Errorf("sender %d: %v", i, err)
				return
			}
			if i%2 == 1 {
				slices.Reverse(ids)
			}
			answers[i] = ids
		})
	}
	all.Wait()
	for i, ids := range answers {
		if !slices.Equal(ids, answers[0]) {
			s.Errorf("sender %d got %v, sender 0 got %v", i, ids, answers[0])
		}
	}
	w := s.register(time.Minute)
	s.claimed(w, keys)
	s.none(w)
}
