package enginetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var unique = []test{
	{name: "JB4_UniqueWhileUnfinished", run: uniqueWhileUnfinished, needs: features{Withdrawal: true, Unique: true}},
	{name: "R3_UniqueUntil", run: uniqueUntil, needs: features{Search: true, Unique: true}},
	{name: "R3_UniqueByContent", run: uniqueByContent, needs: features{Unique: true}},
	{name: "R3_UniqueOfDeadLetters", run: uniqueOfDeadLetters, needs: features{Search: true, Unique: true}},
	{name: "R3_UniqueOfSubscriptions", run: uniqueOfSubscriptions, needs: features{Subscriptions: true, Unique: true}},
	{name: "R3_UniqueOfReplayed", run: uniqueOfReplayed, needs: features{Subscriptions: true, Unique: true}},
	{name: "R3_UniqueOfExpired", run: uniqueOfExpired, needs: features{Unique: true}},
	{name: "R3_UniqueAfterReplay", run: uniqueAfterReplay, needs: features{Search: true, Unique: true}},
	{name: "R4_ReplaceOfAnotherKey", run: replaceOfAnotherKey, needs: features{Limits: true, Unique: true}},
	{name: "R4_ReplaceWaiting", run: replaceWaiting, needs: features{Withdrawal: true, Unique: true}},
	{name: "R4_Debounce", run: debounce, needs: features{Withdrawal: true, Unique: true}},
	{name: "R7_EditWaiting", run: editWaiting, needs: features{Withdrawal: true, Updates: true}},
	{name: "R7_EditEachField", run: editEachField, needs: features{Withdrawal: true, Updates: true}},
	{name: "R7_EditDeadLetter", run: editDeadLetter, needs: features{Search: true, Updates: true}},
	{name: "R8_RunNow", run: runNow, needs: features{Withdrawal: true}},
}

// sendUnique sends one message and returns what became of it.
func (s *suite) sendUnique(payload any, unique posthaste.Unique) posthaste.Sent {
	s.Helper()
	sent, err := s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Payload: payload, Unique: &unique})
	s.must(err)
	return sent[0]
}

func (s *suite) wantSent(when string, got, want posthaste.Sent) {
	s.Helper()
	if got != want {
		s.Errorf("%s: %+v, want %+v", when, got, want)
	}
}

// wantNew checks that a message was stored.
func (s *suite) wantNew(when string, got posthaste.Sent) posthaste.MessageID {
	s.Helper()
	if got.Duplicate || got.Replaced || got.State != "" {
		s.Errorf("%s: %+v, want a new message", when, got)
	}
	return got.ID
}

// JB4: Of 32 concurrent senders one creates the message, and all others get its id. Once it is
// done, dead, cancelled or purged, the next one creates a message.
func uniqueWhileUnfinished(s *suite) {
	s.create(posthaste.QueueOptions{MaxAttempts: 2, BackoffBase: time.Microsecond, BackoffMax: time.Microsecond})
	w := s.register(time.Minute)
	key := posthaste.Unique{Key: "report"}
	race := func(when string) posthaste.MessageID {
		s.Helper()
		const senders = 32
		answers := make([]posthaste.Sent, senders)
		var all sync.WaitGroup
		for i := range senders {
			all.Go(func() {
				sent, err := s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Payload: i, Unique: &key})
				if err != nil {
					s.Errorf("%s: sender %d: %v", when, i, err)
					return
				}
				answers[i] = sent[0]
			})
		}
		all.Wait()
		stored := 0
		for i, a := range answers {
			if a.ID != answers[0].ID {
				s.Errorf("%s: sender %d got %d, sender 0 got %d", when, i, a.ID, answers[0].ID)
			}
			if !a.Duplicate {
				stored++
			}
		}
		if stored != 1 {
			s.Errorf("%s: %d of %d senders stored a message, want 1", when, stored, senders)
		}
		return answers[0].ID
	}
	s.endUnique(w, key, race)
	s.claimed(w, 1)
	s.none(w)
}

// endUnique ends a message in each way, and checks that the next race stores another.
func (s *suite) endUnique(w posthaste.WorkerID, key posthaste.Unique, race func(when string) posthaste.MessageID) {
	s.Helper()
	seen := map[posthaste.MessageID]bool{}
	for _, end := range []string{"done", "dead", "cancelled", "purged", "nothing"} {
		id := race(end)
		if seen[id] {
			s.Errorf("before it was %s, message %d is the same as an earlier one", end, id)
		}
		seen[id] = true
		switch end {
		case "done":
			s.settle(failed, s.claimed(w, 1)...)
			s.wantSent("it waits for its retry", s.sendUnique(1, key), posthaste.Sent{ID: id, Duplicate: true, State: posthaste.StateRetrying})
			got := s.claimed(w, 1)
			s.wantSent("it is running", s.sendUnique(1, key), posthaste.Sent{ID: id, Duplicate: true, State: posthaste.StateRunning})
			s.settle(done, got...)
		case "dead":
			s.settle(hopeless, s.claimed(w, 1)...)
		case "cancelled":
			_, err := s.engine.Cancel(posthaste.WithActor(s.ctx, "ada"), id)
			s.must(err)
		case "purged":
			_, err := s.engine.PurgeQueue(posthaste.WithActor(s.ctx, "ada"), s.queue)
			s.must(err)
		}
	}
}

// R3: The key is held by choice until the message is started, finished or resolved.
func uniqueUntil(s *suite) {
	s.create(posthaste.QueueOptions{MaxAttempts: 3, BackoffBase: time.Microsecond, BackoffMax: time.Microsecond})
	w := s.register(time.Minute)
	for _, until := range []posthaste.Until{posthaste.UntilStarted, posthaste.UntilFinished, posthaste.UntilResolved} {
		key := posthaste.Unique{Key: string(until), Until: until}
		first := s.wantNew("the first", s.sendUnique(0, key))
		s.wantSent("it waits", s.sendUnique(0, key), posthaste.Sent{ID: first, Duplicate: true, State: posthaste.StateReady})
		got := s.claimed(w, 1)
		if until == posthaste.UntilStarted {
			second := s.wantNew("it is running", s.sendUnique(0, key))
			s.settle(failed, got...)
			s.wantSent("its retry does not take the key again", s.sendUnique(0, key), posthaste.Sent{ID: second, Duplicate: true, State: posthaste.StateReady})
			s.settle(done, s.claimed(w, 2)...)
			continue
		}
		s.settle(hopeless, got...)
		if until == posthaste.UntilFinished {
			s.wantNew("it is dead", s.sendUnique(0, key))
			s.settle(done, s.claimed(w, 1)...)
			continue
		}
		s.wantSent("it is dead", s.sendUnique(0, key), posthaste.Sent{ID: first, Duplicate: true, State: posthaste.StateDead})
		_, err := s.engine.Replay(posthaste.WithActor(s.ctx, "ada"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{first}})
		s.must(err)
		if again := s.sendUnique(0, key); again.ID != first {
			s.Errorf("it was replayed: %+v", again)
		}
		s.settle(hopeless, s.claimed(w, 1)...)
		_, err = s.engine.Discard(posthaste.WithActor(s.ctx, "ada"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{first}})
		s.must(err)
		s.wantNew("it is discarded", s.sendUnique(0, key))
		s.settle(done, s.claimed(w, 1)...)
	}
	s.none(w)
}

// R3: Without a key, kind and payload are the key. Keys belong to a queue. Of one call's messages
// with a key the first is stored. Wrong options are refused.
func uniqueByContent(s *suite) {
	s.create(posthaste.QueueOptions{})
	all := []posthaste.Message{{Payload: 1}, {Payload: 2}, {Payload: 1}, {Payload: 1, Kind: "k"}, {Payload: 2, Kind: "k"}, {Payload: 1, Kind: "k"}}
	for i := range all {
		all[i].Queue, all[i].Unique = s.queue, &posthaste.Unique{}
	}
	sent, err := s.engine.Send(s.ctx, all...)
	s.must(err)
	for i, duplicate := range []bool{false, false, true, false, false, true} {
		if sent[i].Duplicate != duplicate || duplicate && sent[i].ID != sent[i-2].ID {
			s.Errorf("message %d: %+v; all are %+v", i, sent[i], sent)
		}
	}
	s.wantSent("beside the key that is its own hash", s.sendUnique(1, posthaste.Unique{}), posthaste.Sent{ID: sent[0].ID, Duplicate: true, State: posthaste.StateReady})
	w := s.register(time.Minute)
	s.claimed(w, 4)
	s.none(w)
	for what, m := range map[string]posthaste.Message{
		"a dedupe key too":         {DedupeKey: "d", Unique: &posthaste.Unique{}},
		"an unknown until":         {Unique: &posthaste.Unique{Until: "ever"}},
		"an unknown exists":        {Unique: &posthaste.Unique{Exists: "drop"}},
		"max_delay without repl.":  {Unique: &posthaste.Unique{MaxDelay: time.Second}},
		"max_delay below zero":     {Unique: &posthaste.Unique{MaxDelay: -1, Exists: posthaste.ReplaceExisting}},
		"two that would replace e": {Unique: &posthaste.Unique{Key: "x", Exists: posthaste.ReplaceExisting}},
	} {
		m.Queue = s.queue
		_, err := s.engine.Send(s.ctx, m, m)
		s.wantCode(what, err, posthaste.CodeInvalid)
	}
}

// R3: A dead letter whose key another message holds stays when it is replayed, and the others of
// a bulk are replayed. Once the key is free, it is replayed and takes the key.
func uniqueOfDeadLetters(s *suite) {
	s.create(posthaste.QueueOptions{})
	ctx := posthaste.WithActor(s.ctx, "ada")
	w := s.register(time.Minute)
	for _, until := range []posthaste.Until{posthaste.UntilFinished, posthaste.UntilStarted} {
		key := posthaste.Unique{Key: "k" + string(until), Until: until}
		first := s.wantNew("the first", s.sendUnique(1, key))
		other := s.wantNew("another", s.sendUnique(2, posthaste.Unique{Key: "other" + string(until)}))
		s.settle(hopeless, s.claimed(w, 2)...)
		second := s.wantNew("the first is dead", s.sendUnique(3, key))
		_, err := s.engine.Replay(ctx, posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{first}})
		s.wantCode("replaying it alone", err, posthaste.CodeUniqueConflict)
		page, err := s.engine.Replay(ctx, posthaste.DeadLetterFilter{Queue: s.queue})
		s.must(err)
		if !slices.Equal(page.Items, []posthaste.MessageID{other}) || !slices.Equal(page.Conflicts, []posthaste.MessageID{first}) {
			s.Errorf("a bulk replayed %v and left %v, want %d and %d", page.Items, page.Conflicts, other, first)
		}
		s.wantState(first, posthaste.StateDead)
		s.settle(done, s.claimed(w, 2)...)
		s.wantState(second, posthaste.StateDone)
		page, err = s.engine.Replay(ctx, posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{first}})
		s.must(err)
		if len(page.Items) != 1 || len(page.Conflicts) != 0 {
			s.Errorf("once the key was free, %v were replayed and %v left", page.Items, page.Conflicts)
		}
		if again := s.sendUnique(4, key); again.ID != first || !again.Duplicate {
			s.Errorf("it was replayed, and sent again it is %+v", again)
		}
		got := s.claimed(w, 1)
		if until == posthaste.UntilStarted {
			s.wantNew("the replayed one was started", s.sendUnique(4, key))
			s.settle(done, s.claimed(w, 1)...)
		}
		s.settle(done, got...)
	}
	s.none(w)
}

// R3: The key is held until the last subscription has finished.
func uniqueOfSubscriptions(s *suite) {
	s.create(posthaste.QueueOptions{})
	s.must(s.engine.Subscribe(posthaste.WithActor(s.ctx, "ada"), s.queue, "other", posthaste.SubscriptionOptions{}))
	w := s.register(time.Minute)
	finished, started := posthaste.Unique{Key: "f"}, posthaste.Unique{Key: "s", Until: posthaste.UntilStarted}
	a, b := s.sendUnique(1, finished), s.sendUnique(2, started)
	s.settle(done, s.claimed(w, 2)...)
	s.wantSent("it waits in one subscription", s.sendUnique(3, finished), posthaste.Sent{ID: a.ID, Duplicate: true, State: posthaste.StateReady})
	if again := s.wantNew("one subscription has started it", s.sendUnique(4, started)); again == b.ID {
		s.Errorf("one subscription has started it, and it is the same")
	}
	reply, err := s.engine.Receive(s.ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: s.queue, Subscription: "other"}, Max: 10, Lease: time.Minute})
	s.must(err)
	s.settle(done, reply.Deliveries...)
	s.wantNew("both have finished it", s.sendUnique(5, finished))
}

// R3: A replayed message with started takes its key again, whatever its other subscriptions have done
// with it before, and holds it until it is handed out again.
func uniqueOfReplayed(s *suite) {
	s.create(posthaste.QueueOptions{BackoffBase: time.Hour, BackoffMax: time.Hour})
	ctx := posthaste.WithActor(s.ctx, "ada")
	s.must(s.engine.Subscribe(ctx, s.queue, "other", posthaste.SubscriptionOptions{}))
	w := s.register(time.Minute)
	for _, fate := range []posthaste.Outcome{posthaste.OutcomeRetried, posthaste.OutcomeDone, "running"} {
		key := posthaste.Unique{Key: string(fate), Until: posthaste.UntilStarted}
		first := s.wantNew("the first", s.sendUnique(1, key))
		s.settle(hopeless, s.claimed(w, 1)...)
		reply, err := s.engine.Receive(s.ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: s.queue, Subscription: "other"}, Max: 1, Lease: time.Minute})
		s.must(err)
		if fate != "running" {
			s.settle(posthaste.Settlement{Outcome: fate, Error: "x", RetryAfter: time.Hour}, reply.Deliveries...)
		}
		_, err = s.engine.Replay(ctx, posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{first}})
		s.must(err)
		if again := s.sendUnique(2, key); again.ID != first || !again.Duplicate {
			s.Errorf("it was replayed and is %s in the other subscription, and sent again it is %+v", fate, again)
		}
		got := s.claimed(w, 1)
		second := s.wantNew("it was handed out again", s.sendUnique(2, key))
		s.settle(done, got...)
		_, err = s.engine.Cancel(ctx, second)
		s.must(err)
	}
}

// R3: A message that is too old holds no key, before a claim finds that it has expired.
func uniqueOfExpired(s *suite) {
	s.create(posthaste.QueueOptions{MaxAge: maxAge})
	key := posthaste.Unique{Key: "k"}
	first := s.wantNew("the first", s.sendUnique(1, key))
	s.age()
	if second := s.wantNew("the first is too old", s.sendUnique(2, key)); second == first {
		s.Errorf("message %d is the first", second)
	}
}

// R3: A message that was replayed and not handed out since is ready, in every answer, and is not
// replaced.
func uniqueAfterReplay(s *suite) {
	s.create(posthaste.QueueOptions{})
	w := s.register(time.Minute)
	key := posthaste.Unique{Key: "k", Exists: posthaste.ReplaceExisting}
	first := s.wantNew("the first", s.sendUnique(1, key))
	s.settle(hopeless, s.claimed(w, 1)...)
	_, err := s.engine.Replay(posthaste.WithActor(s.ctx, "ada"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{first}})
	s.must(err)
	s.wantState(first, posthaste.StateReady)
	s.wantSent("it was replayed", s.sendUnique(2, key), posthaste.Sent{ID: first, Duplicate: true, State: posthaste.StateReady})
	s.settle(done, s.claimed(w, 1)...)
}

// R4: A message of a queue that looks at keys is not replaced by one with another key.
func replaceOfAnotherKey(s *suite) {
	s.create(posthaste.QueueOptions{Fair: true})
	send := func(key string) error {
		_, err := s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Payload: 1, Key: key, Unique: &posthaste.Unique{Key: "u", Exists: posthaste.ReplaceExisting}})
		return err
	}
	s.must(send("a"))
	err := send("b")
	if e, ok := errors.AsType[*posthaste.Error](err); !ok || e.Code != posthaste.CodeConflict || e.Field != "key" {
		s.Errorf("with another key: %v, want a conflict of the field key", err)
	}
	s.must(send("a"))
}

// R4: A waiting message is replaced and keeps its id and the time when it was sent. One that was
// handed out is kept, or with started a second one is sent.
func replaceWaiting(s *suite) {
	s.create(posthaste.QueueOptions{})
	w := s.register(time.Minute)
	send := func(payload any, delay time.Duration, unique posthaste.Unique) posthaste.Sent {
		s.Helper()
		unique.Exists = posthaste.ReplaceExisting
		sent, err := s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Payload: payload, Delay: delay, Unique: &unique, Reference: fmt.Sprint("r", payload)})
		s.must(err)
		return sent[0]
	}
	for _, until := range []posthaste.Until{posthaste.UntilFinished, posthaste.UntilStarted} {
		key := posthaste.Unique{Key: string(until), Until: until}
		first := s.wantNew("the first", send(1, 0, key))
		before, err := s.engine.Message(s.ctx, first)
		s.must(err)
		s.wantSent("it is ready", send(2, 0, key), posthaste.Sent{ID: first, Replaced: true})
		s.wantSent("it was replaced before", send(3, 0, key), posthaste.Sent{ID: first, Replaced: true})
		after, err := s.engine.Message(s.ctx, first)
		s.must(err)
		if string(after.Payload) != "3" || after.Reference != "r3" || !after.CreatedAt.Equal(before.CreatedAt) {
			s.Errorf("the message is now %s, %s, sent at %s; it was %s, sent at %s", after.Payload, after.Reference, after.CreatedAt, before.Payload, before.CreatedAt)
		}
		got := s.claimed(w, 1)
		s.none(w)
		if got[0].MessageID != first || string(got[0].Payload) != "3" || got[0].Attempt != 1 || !got[0].CreatedAt.Equal(before.CreatedAt) {
			s.Errorf("handed out as %+v", got[0])
		}
		if until == posthaste.UntilStarted {
			second := s.wantNew("it is running", send(4, 0, key))
			s.settle(done, s.claimed(w, 1)...)
			if second == first {
				s.Error("the second message is the first")
			}
		} else {
			s.wantSent("it is running", send(4, 0, key), posthaste.Sent{ID: first, Duplicate: true, State: posthaste.StateRunning})
			s.settle(failed, got...)
			s.wantSent("it waits for its retry", send(4, 0, key), posthaste.Sent{ID: first, Duplicate: true, State: posthaste.StateRetrying})
			got = s.claimed(w, 1)
		}
		s.settle(done, got...)
		s.wantNew("it is done", send(5, 0, key))
		s.settle(done, s.claimed(w, 1)...)
	}
	s.none(w)
}

// R4: Replacing with a delay postpones a message again and again, up to max_delay.
func debounce(s *suite) {
	s.create(posthaste.QueueOptions{})
	unique := posthaste.Unique{Key: "k", Exists: posthaste.ReplaceExisting, MaxDelay: time.Hour}
	due := func(delay time.Duration) (posthaste.MessageID, time.Duration) {
		s.Helper()
		sent, err := s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Payload: 1, Delay: delay, Unique: &unique})
		s.must(err)
		m, err := s.engine.Message(s.ctx, sent[0].ID)
		s.must(err)
		return m.ID, m.Subscriptions[0].DueAt.Sub(m.CreatedAt).Round(time.Minute)
	}
	for i, bound := range []time.Duration{5 * time.Minute, 1} { // also of the first, and however short
		unique.Key, unique.MaxDelay = fmt.Sprint("bound ", i), bound
		for range 2 {
			if _, got := due(10 * time.Minute); got > bound.Round(time.Minute) {
				s.Errorf("with a delay of 10m and a max_delay of %s it is due after %s", bound, got)
			}
		}
	}
	_, err := s.engine.PurgeQueue(posthaste.WithActor(s.ctx, "ada"), s.queue)
	s.must(err)
	unique.Key, unique.MaxDelay = "k", time.Hour
	first, after := due(time.Minute)
	for _, delay := range []time.Duration{20 * time.Minute, 40 * time.Minute, 2 * time.Hour, 10 * time.Minute} {
		if id, got := due(delay); id != first || got != min(delay, time.Hour) {
			s.Errorf("with a delay of %s message %d is due after %s, want %d", delay, id, got, first)
		}
	}
	if after != time.Minute {
		s.Errorf("at first it is due after %s", after)
	}
	if id, got := due(0); id != first || got > 0 {
		s.Errorf("without a delay message %d is due after %s", id, got)
	}
	w := s.register(time.Minute)
	s.claimed(w, 1)
	s.none(w)
}

// R8: A message that waits for its time is due now, and a pause still holds it.
func runNow(s *suite) {
	s.create(posthaste.QueueOptions{BackoffBase: time.Hour, BackoffMax: time.Hour})
	ctx := posthaste.WithActor(s.ctx, "ada")
	w := s.register(time.Minute)
	ids, err := posthaste.IDs(s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Payload: 1, Delay: time.Hour}))
	s.must(err)
	run := func(want posthaste.State, due bool, held ...string) {
		s.Helper()
		r, err := s.engine.RunMessage(ctx, ids[0])
		s.must(err)
		if len(r) != 1 || r[0].Subscription != posthaste.DefaultSubscription || r[0].State != want || r[0].Due != due || !slices.Equal(r[0].HeldBy, held) {
			s.Errorf("running it returned %+v, want %s, %v, %v", r, want, due, held)
		}
	}
	s.must(s.engine.Pause(ctx, posthaste.OfQueue(s.queue), posthaste.PauseOptions{}))
	run(posthaste.StateReady, true, "paused")
	s.none(w)
	s.must(s.engine.Resume(ctx, posthaste.OfQueue(s.queue)))
	run(posthaste.StateReady, true)
	got := s.claimed(w, 1)
	run(posthaste.StateRunning, false)
	s.settle(posthaste.Settlement{Outcome: posthaste.OutcomeRetried, Error: "x", RetryAfter: time.Hour}, got...)
	s.none(w)
	run(posthaste.StateRetrying, true)
	got = s.claimed(w, 1)
	if got[0].Attempt != 2 {
		s.Errorf("attempt %d, want 2", got[0].Attempt)
	}
	s.settle(done, got...)
	run(posthaste.StateDone, false)
	_, err = s.engine.RunMessage(ctx, 1<<40)
	s.wantCode("an unknown message", err, posthaste.CodeNotFound)
}

func containsAll(text string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(text, p) })
}
