package enginetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var cancelling = []test{
	{name: "R10_EndIsCancelled", run: cancelThenEnd, needs: features{Withdrawal: true}},
	{name: "R10_DoneIsDone", run: cancelThenDone, needs: features{Withdrawal: true}},
	{name: "R10_LossIsCancelled", run: cancelThenLoss, needs: features{Withdrawal: true}},
	{name: "R10_WorkerIsTold", run: cancelTellsWorker, needs: features{Withdrawal: true}},
	{name: "R10_ReceiverIsTold", run: cancelTellsReceiver, needs: features{Withdrawal: true}},
	{name: "R10_NotesAreRecorded", run: cancelThenNote, needs: features{Withdrawal: true}},
	{name: "R10_IsShown", run: cancelIsShown, needs: features{Withdrawal: true, Attempts: true, Search: true}},
	{name: "R10_KeysAreReleased", run: cancelReleasesKeys, needs: features{Withdrawal: true, Unique: true}},
	{name: "R10_EachSubscription", run: cancelEachSubscription, needs: features{Withdrawal: true, Subscriptions: true}},
	{name: "R10_OrderedKeyGoesOn", run: cancelOrdered, needs: features{Withdrawal: true, Ordered: true}},
	{name: "R10_AtMostOnce", run: cancelAtMostOnce, needs: features{Withdrawal: true, AtMostOnce: true}},
	{name: "R10_CancelsThatRace", run: cancelsThatRace, needs: features{Withdrawal: true}},
}

// cancelRunning cancels a message that is handed out to the only subscription.
func (s *suite) cancelRunning(id posthaste.MessageID) {
	s.Helper()
	got, err := s.engine.Cancel(posthaste.WithActor(s.ctx, "ada"), id)
	s.must(err)
	want := []posthaste.Withdrawal{{Subscription: posthaste.DefaultSubscription, State: posthaste.StateRunning, Requested: true}}
	if !slices.Equal(got, want) {
		s.Fatalf("cancelling message %d, which runs, answered %+v, want %+v", id, got, want)
	}
}

// told returns the deliveries that a heartbeat reports as cancelled.
func (s *suite) told(w posthaste.WorkerID) []posthaste.DeliveryID {
	s.Helper()
	reply, err := s.engine.Heartbeat(s.ctx, posthaste.Heartbeat{Worker: w, Queues: []posthaste.QueueRef{s.ref()}})
	s.must(err)
	slices.Sort(reply.Cancelled)
	return reply.Cancelled
}

// cancelThenEnd ends deliveries in every way but success after their messages were cancelled, in
// the first attempt and in a later one: none comes again, and none is a dead letter.
func cancelThenEnd(s *suite) {
	s.create(quick())
	w := s.register(time.Minute)
	later := released
	later.RetryAfter = time.Hour
	for name, take := range map[string]func() posthaste.RawDelivery{
		"claimed": func() posthaste.RawDelivery { return s.claimed(w, 1)[0] },
		"received": func() (d posthaste.RawDelivery) {
			s.until("it comes", func() bool {
				got := s.receive(1, time.Minute)
				if len(got) > 0 {
					d = got[0]
				}
				return len(got) > 0
			})
			return d
		},
	} {
		for _, attempt := range []int{1, 2} {
			for _, end := range []posthaste.Settlement{failed, hopeless, released, later, {Outcome: posthaste.OutcomeSetAside}} {
				id := s.send(1)[0]
				d := take()
				if attempt == 2 {
					s.settle(failed, d)
					d = take()
				}
				s.cancelRunning(id)
				s.cancelRunning(id) // idempotent
				what := fmt.Sprintf("%s, attempt %d, then %s", name, attempt, end.Outcome)
				if r := s.settle(end, d)[0]; r.Outcome != posthaste.OutcomeCancelled || !r.DueAt.IsZero() {
					s.Errorf("%s: it became %+v, want cancelled", what, r)
				}
				if got := s.state(id); got.State != posthaste.StateCancelled || !got.DueAt.IsZero() {
					s.Errorf("%s: the message is %s, due at %s, want cancelled", what, got.State, got.DueAt)
				}
				if got, err := s.engine.Cancel(s.ctx, id); err != nil || len(got) != 1 || got[0].InTime || got[0].Requested || !got[0].Cancelled() {
					s.Errorf("%s: cancelled once more: %+v, %v", what, got, err)
				}
			}
		}
	}
	s.none(w)
	s.nothing("after they were cancelled")
	s.wantNothingLeft(20)
}

// wantNothingLeft checks the records and the counters after n running messages were cancelled.
func (s *suite) wantNothingLeft(n int) {
	s.Helper()
	if dead, err := s.engine.DeadLetters(s.ctx, posthaste.DeadLetterFilter{All: true}); err != nil || len(dead.Items) > 0 {
		s.Errorf("dead letters: %+v, %v", dead.Items, err)
	}
	actions := s.actions()
	cancels := 0
	for _, a := range actions {
		if a.Action == "cancel" && a.By == "ada" {
			cancels++
		}
	}
	if cancels != n {
		s.Errorf("%d cancels are on record, want one for each of %d messages", cancels, n)
	}
	if info := s.counted(); info.Depth != 0 || info.InFlight != 0 || info.Dead != 0 {
		s.Errorf("it is said that %d wait, %d are in flight and %d are dead", info.Depth, info.InFlight, info.Dead)
	}
}

// cancelThenDone acknowledges cancelled messages: they are done.
func cancelThenDone(s *suite) {
	s.create(quick())
	w := s.register(time.Minute)
	s.send(3)
	for i, d := range s.claimed(w, 3) {
		s.cancelRunning(d.MessageID)
		with := done
		if i == 1 {
			with.Receipt = json.RawMessage(`{"id": 7}`)
		}
		if r := s.settle(with, d)[0]; r.Outcome != posthaste.OutcomeDone {
			s.Errorf("acknowledged after it was cancelled, it became %s", r.Outcome)
		}
		s.wantState(d.MessageID, posthaste.StateDone)
		got, err := s.engine.Cancel(s.ctx, d.MessageID)
		s.must(err)
		if got[0].InTime || got[0].Requested || got[0].State != posthaste.StateDone {
			s.Errorf("cancelling a message that is done answered %+v", got)
		}
	}
	s.none(w)
}

// cancelAll cancels messages that run.
func (s *suite) cancelAll(ids []posthaste.MessageID) {
	s.Helper()
	for _, id := range ids {
		s.cancelRunning(id)
	}
}

// cancelThenLoss loses the holders of cancelled messages.
func cancelThenLoss(s *suite) {
	s.create(quick())
	ids := s.send(4)
	w := s.register(time.Minute)
	held := s.claimed(w, 2)
	var leased []posthaste.RawDelivery
	s.until("the others are received", func() bool {
		leased = append(leased, s.receive(2-len(leased), 300*time.Millisecond)...)
		return len(leased) == 2
	})
	s.cancelRunning(held[0].MessageID)
	s.cancelRunning(leased[0].MessageID)
	s.must(s.engine.Unregister(s.ctx, w))
	again := s.register(time.Minute)
	back := map[posthaste.MessageID]int{}
	s.until("the others come again", func() bool {
		_, err := s.engine.Maintain(s.ctx, posthaste.UpkeepRescue)
		s.must(err)
		for _, d := range s.claim(again, 10) {
			back[d.MessageID] = d.Attempt
		}
		return len(back) >= 2
	})
	for _, d := range []posthaste.RawDelivery{held[0], leased[0]} {
		s.until("it is cancelled", func() bool { return s.state(d.MessageID).State != posthaste.StateRunning })
		s.wantState(d.MessageID, posthaste.StateCancelled)
		if back[d.MessageID] != 0 {
			s.Errorf("message %d was cancelled, lost and handed out again", d.MessageID)
		}
		if r := s.trySettle(done, d)[0]; r.Settled {
			s.Errorf("a late success was accepted: %+v", r)
		}
		s.wantState(d.MessageID, posthaste.StateCancelled)
	}
	if back[held[1].MessageID] != 2 || back[leased[1].MessageID] != 2 {
		s.Errorf("the others came again as %v, want attempt 2 of each of %v", back, ids)
	}
	s.none(again)
}

// cancelTellsWorker: heartbeats name the worker's cancelled deliveries, of all its queues, until
// they end, and no others.
func cancelTellsWorker(s *suite) {
	s.create(quick())
	w, other := s.register(time.Minute), s.register(time.Minute)
	s.send(4)
	held := s.claimed(w, 3)
	theirs := s.claimed(other, 1)[0]
	if got := s.told(w); len(got) > 0 {
		s.Errorf("before anything was cancelled it is told %v", got)
	}
	want := []posthaste.DeliveryID{held[0].ID, held[2].ID}
	slices.Sort(want)
	for _, d := range []posthaste.RawDelivery{held[0], held[2], theirs} {
		s.cancelRunning(d.MessageID)
	}
	for range 2 { // each time, because an answer may be lost
		if got := s.told(w); !slices.Equal(got, want) {
			s.Errorf("the worker is told %v, want %v", got, want)
		}
	}
	if got := s.told(other); !slices.Equal(got, []posthaste.DeliveryID{theirs.ID}) {
		s.Errorf("the other worker is told %v, want %v", got, theirs.ID)
	}
	s.settle(failed, held[0])
	s.settle(done, held[1], held[2])
	s.until("nothing is told any more", func() bool {
		_, err := s.engine.Maintain(s.ctx, posthaste.UpkeepSpace)
		s.must(err)
		return len(s.told(w)) == 0
	})
	if got := s.told(other); !slices.Equal(got, []posthaste.DeliveryID{theirs.ID}) {
		s.Errorf("after upkeep the other worker is told %v, want %v", got, theirs.ID)
	}
}

// cancelTellsReceiver: extending a lease tells of the cancel, and extends it.
func cancelTellsReceiver(s *suite) {
	s.create(quick())
	s.send(2)
	var held []posthaste.RawDelivery
	s.until("they come", func() bool {
		held = append(held, s.receive(2-len(held), time.Minute)...)
		return len(held) == 2
	})
	extend := func() (cancelled []bool) {
		s.Helper()
		results, err := s.engine.Extend(s.ctx, posthaste.ExtendRequest{Deliveries: []posthaste.DeliveryID{held[0].ID, held[1].ID}, Lease: time.Hour})
		s.must(err)
		for _, r := range results {
			if !r.Settled {
				s.Errorf("delivery %d was not extended: %+v", r.Delivery, r)
			}
			cancelled = append(cancelled, r.Cancelled)
		}
		return cancelled
	}
	if got := extend(); !slices.Equal(got, []bool{false, false}) {
		s.Errorf("before anything was cancelled it is told %v", got)
	}
	s.cancelRunning(held[1].MessageID)
	for range 2 {
		if got := extend(); !slices.Equal(got, []bool{false, true}) {
			s.Errorf("of the second delivery it is told %v", got)
		}
	}
	s.settle(released, held[1])
	s.wantState(held[1].MessageID, posthaste.StateCancelled)
	results, err := s.engine.Extend(s.ctx, posthaste.ExtendRequest{Deliveries: []posthaste.DeliveryID{held[1].ID}, Lease: time.Hour})
	s.must(err)
	if results[0].Settled || results[0].Cancelled {
		s.Errorf("extended after its end: %+v", results[0])
	}
	s.settle(done, held[0])
}

// cancelThenNote: the notes of a cancelled delivery are recorded, and their answer tells of the
// cancel.
func cancelThenNote(s *suite) {
	s.create(quick())
	w := s.register(time.Minute)
	ids := s.send(2)
	held := s.claimed(w, 2)
	s.checkpoint(held[0], `1`)
	s.cancelRunning(held[0].MessageID)
	for i, d := range held {
		r := s.note(d, posthaste.Note{Checkpoint: json.RawMessage(`2`)})
		if !r.Settled || r.Err != nil || r.Cancelled != (i == 0) {
			s.Errorf("the checkpoint of message %d of %v was answered by %+v", d.MessageID, ids, r)
		}
	}
	s.settle(failed, held...)
	s.wantState(held[0].MessageID, posthaste.StateCancelled)
	again := s.claimed(w, 1)[0]
	if at := string(again.LastCheckpoint()); again.MessageID != held[1].MessageID || at != `2` {
		s.Errorf("message %d came again at the checkpoint %s", again.MessageID, at)
	}
	if r := s.note(held[0], posthaste.Note{Checkpoint: json.RawMessage(`3`)}); r.Settled || r.Cancelled {
		s.Errorf("a checkpoint after the end was answered by %+v", r)
	}
}

// cancelIsShown: the attempt says when the message was cancelled and how it ended.
func cancelIsShown(s *suite) {
	s.create(quick())
	w := s.register(time.Minute)
	id := s.send(1)[0]
	d := s.claimed(w, 1)[0]
	s.checkpoint(d, `7`)
	s.cancelRunning(id)
	last := func() posthaste.Attempt {
		s.Helper()
		attempts := s.state(id).Attempts
		if len(attempts) != 1 {
			s.Fatalf("%d attempts: %+v", len(attempts), attempts)
		}
		return attempts[0]
	}
	a := last()
	if a.Outcome != "" || a.CancelRequestedAt.Before(a.ClaimedAt) {
		s.Errorf("while it runs the attempt is %+v", a)
	}
	s.wantState(id, posthaste.StateRunning)
	s.settle(failed, d)
	if b := last(); b.Outcome != posthaste.OutcomeCancelled || b.Error != failed.Error || !b.CancelRequestedAt.Equal(a.CancelRequestedAt) || string(b.Checkpoint) != `7` {
		s.Errorf("after its end the attempt is %+v", b)
	}
	for state, n := range map[posthaste.State]int{posthaste.StateCancelled: 1, posthaste.StateRunning: 0, posthaste.StateRetrying: 0} {
		if got, err := s.engine.Messages(s.ctx, posthaste.MessageFilter{Queue: s.queue, State: state}); err != nil || len(got.Items) != n {
			s.Errorf("%d messages are listed as %s, %v; want %d", len(got.Items), state, err, n)
		}
	}
}

// cancelReleasesKeys: once a cancelled message has ended, its dedupe key and its unique key are
// free, and not before.
func cancelReleasesKeys(s *suite) {
	s.create(quick())
	w := s.register(time.Minute)
	first := s.sendOnce("a", time.Hour)
	unique := s.wantNew("the first", s.sendUnique(1, posthaste.Unique{Key: "u"}))
	held := s.claimed(w, 2)
	s.cancelAll([]posthaste.MessageID{first, unique})
	if got := s.sendOnce("a", time.Hour); got != first {
		s.Errorf("while message %d runs, its dedupe key sent message %d", first, got)
	}
	if got := s.sendUnique(2, posthaste.Unique{Key: "u"}); !got.Duplicate || got.ID != unique {
		s.Errorf("while message %d runs, its unique key answered %+v", unique, got)
	}
	s.settle(failed, held...)
	if got := s.sendOnce("a", time.Hour); got == first {
		s.Error("the dedupe key of the cancelled message is not free")
	}
	s.wantNew("after its end", s.sendUnique(3, posthaste.Unique{Key: "u"}))
}

// cancelEachSubscription: where the message waits it is withdrawn, where it runs the holder is
// told, and where it is done nothing happens.
func cancelEachSubscription(s *suite) {
	s.create(quick())
	for _, name := range []string{"done", "idle", "runs"} {
		s.must(s.engine.Subscribe(posthaste.WithActor(s.ctx, "ada"), s.queue, name, posthaste.SubscriptionOptions{}))
	}
	id := s.send(1)[0]
	receive := func(subscription string) posthaste.RawDelivery {
		s.Helper()
		var got []posthaste.RawDelivery
		s.until("it comes to "+subscription, func() bool {
			reply, err := s.engine.Receive(s.ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: s.queue, Subscription: subscription}, Max: 1, Lease: time.Minute})
			s.must(err)
			got = reply.Deliveries
			return len(got) > 0
		})
		return got[0]
	}
	first, second := receive(posthaste.DefaultSubscription), receive("runs")
	s.settle(done, receive("done"))
	got, err := s.engine.Cancel(posthaste.WithActor(s.ctx, "ada"), id)
	s.must(err)
	slices.SortFunc(got, func(a, b posthaste.Withdrawal) int { return strings.Compare(a.Subscription, b.Subscription) })
	want := []posthaste.Withdrawal{{Subscription: "default", State: posthaste.StateRunning, Requested: true}, {Subscription: "done", State: posthaste.StateDone},
		{Subscription: "idle", State: posthaste.StateCancelled, InTime: true}, {Subscription: "runs", State: posthaste.StateRunning, Requested: true}}
	if !slices.Equal(got, want) {
		s.Errorf("it answered %+v, want %+v", got, want)
	}
	s.settle(done, first)
	if r := s.settle(failed, second)[0]; r.Outcome != posthaste.OutcomeCancelled {
		s.Errorf("the second became %s", r.Outcome)
	}
	for _, name := range []string{posthaste.DefaultSubscription, "done", "idle", "runs"} {
		if ids := s.receiveAll(name); len(ids) > 0 {
			s.Errorf("%s got %v", name, ids)
		}
	}
}

// cancelOrdered: when the running message of a key ends as cancelled, the next one of the key
// goes on, and not before.
func cancelOrdered(s *suite) {
	s.ordered(func(o *posthaste.QueueOptions) { o.StopOnDead = s.engine.Capabilities().StopOnDead })
	ids := s.sendKeys("a", "a", "a", "a")
	for i, end := range []posthaste.Settlement{failed, hopeless, released} {
		d := s.next(ids[i], 1)
		s.cancelRunning(ids[i])
		s.nothing("while the cancelled message runs")
		if r := s.settle(end, d)[0]; r.Outcome != posthaste.OutcomeCancelled {
			s.Errorf("it became %s", r.Outcome)
		}
	}
	s.settle(done, s.next(ids[3], 1))
	ids = s.sendKeys("a", "a")
	w := s.register(time.Minute)
	held := s.claimed(w, 1)
	if held[0].MessageID != ids[0] {
		s.Fatalf("message %d came first", held[0].MessageID)
	}
	s.cancelRunning(ids[0])
	s.lose(w)
	s.settle(done, s.next(ids[1], 1))
	s.wantState(ids[0], posthaste.StateCancelled)
}

// cancelAtMostOnce: a message that was handed out at most once has ended.
func cancelAtMostOnce(s *suite) {
	s.create(posthaste.QueueOptions{Mode: posthaste.AtMostOnce})
	id := s.send(1)[0]
	s.claimed(s.register(time.Minute), 1)
	got, err := s.engine.Cancel(s.ctx, id)
	s.must(err)
	if want := []posthaste.Withdrawal{{Subscription: posthaste.DefaultSubscription, State: posthaste.StateHandedOut}}; !slices.Equal(got, want) {
		s.Errorf("it answered %+v, want %+v", got, want)
	}
}

// cancelsThatRace cancels messages while their deliveries end: messages reported as cancelled or
// requested do not come again.
func cancelsThatRace(s *suite) {
	s.create(posthaste.QueueOptions{MaxAttempts: 100, BackoffBase: time.Microsecond, BackoffMax: time.Microsecond})
	w := s.register(time.Minute)
	for round := range 60 {
		id := s.send(1)[0]
		d := s.claimed(w, 1)[0]
		end := []posthaste.Settlement{failed, released, hopeless}[round%3]
		var answer []posthaste.Withdrawal
		var group sync.WaitGroup
		group.Go(func() {
			var err error
			if answer, err = s.engine.Cancel(s.ctx, id); err != nil {
				s.Error(err)
			}
		})
		s.settle(end, d)
		group.Wait()
		if s.Failed() {
			return
		}
		state := s.state(id).State
		switch a := answer[0]; {
		case a.Cancelled():
			if state != posthaste.StateCancelled {
				s.Errorf("round %d: it answered %+v, and after the delivery became %s the message is %s", round, a, end.Outcome, state)
			}
		case a.State != posthaste.StateDead || state != posthaste.StateDead:
			s.Errorf("round %d: it answered %+v, and the message is %s", round, a, state)
		}
	}
	s.none(w)
}
