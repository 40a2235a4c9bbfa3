package enginetest

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var choosing = []test{
	{name: "RE4_PrioritiesAreObeyed", run: prioritiesAreObeyed, needs: features{Exact: true}},
	{name: "PrioritiesOfWhatIsDue", run: prioritiesOfWhatIsDue},
	{name: "NoPriorityIsStarved", run: noPriorityIsStarved},
	{name: "DS5_RetriesOfEveryPriority", run: retriesOfEveryPriority},
	{name: "DedupeKeySendsOnce", run: dedupeKeySendsOnce},
	{name: "DedupeKeyAtOnce", run: dedupeKeyAtOnce},
	{name: "DedupeKeyIsFreeAgain", run: dedupeKeyIsFreeAgain, needs: features{Search: true}},
	{name: "DedupeKeyOfSubscriptions", run: dedupeKeyOfSubscriptions, needs: features{Subscriptions: true}},
	{name: "RequestsThatComeAgain", run: requestsThatComeAgain, needs: features{Idempotency: true}},
	{name: "PausedQueues", run: pausedQueues},
	{name: "DS6_AtMostOnce", run: atMostOnce, needs: features{AtMostOnce: true, Search: true}},
	{name: "DS6_ReceivedAtMostOnce", run: receivedAtMostOnce, needs: features{AtMostOnce: true}},
}

// sendOf sends n messages of a priority, which is also the payload.
func (s *suite) sendOf(priority, n int) {
	s.Helper()
	messages := make([]posthaste.Message, n)
	for i := range messages {
		messages[i] = posthaste.Message{Queue: s.queue, Payload: priority, Priority: priority}
	}
	_, err := s.engine.Send(s.ctx, messages...)
	s.must(err)
}

// A claim hands out the priorities in ascending order, except for the one that the lottery may
// have put first.
func prioritiesAreObeyed(s *suite) {
	s.create(posthaste.QueueOptions{})
	w := s.register(time.Minute)
	firsts := map[string]int{}
	for round := range 24 {
		n := 2
		if round%2 == 0 {
			n = 80 // more messages than the special paths for small numbers handle
		}
		for _, p := range []int{3, 1, 0, 2} {
			s.sendOf(p, n)
		}
		var order []string
		var got []posthaste.RawDelivery
		if round%3 == 0 {
			got = s.receive(4*n, time.Minute)
		} else {
			got = s.claim(w, 4*n)
		}
		for i, payload := range payloads(got) {
			if len(order) == 0 || order[len(order)-1] != payload {
				order = append(order, payload)
			} else if got[i].MessageID < got[i-1].MessageID {
				s.Errorf("of priority %s message %d came before %d", payload, got[i-1].MessageID, got[i].MessageID)
			}
		}
		want := []string{"0", "1", "2", "3"}
		if len(order) > 0 {
			want = slices.DeleteFunc(want, func(p string) bool { return p == order[0] })
			want = slices.Insert(want, 0, order[0])
			firsts[order[0]]++
		}
		if len(got) != 4*n || !slices.Equal(order, want) {
			s.Fatalf("%d deliveries in the order %v, want %d in that of %v", len(got), order, 4*n, want)
		}
		s.settle(done, got...)
	}
	// Of 24 claims, 3 start with a priority chosen by lot. More than 12 do so once in a
	// million runs.
	if firsts["0"] < 12 {
		s.Errorf("the claims began with %v: most must with 0", firsts)
	}
}

// Due messages keep their priority, no matter how many messages of a lower priority are due,
// and since when. New and due messages share claims only within a priority.
func prioritiesOfWhatIsDue(s *suite) {
	s.create(posthaste.QueueOptions{})
	w := s.register(time.Minute)
	const many, few = 300, 40
	delayed := make([]posthaste.Message, many)
	for i := range delayed {
		delayed[i] = posthaste.Message{Queue: s.queue, Payload: 3, Priority: 3, Delay: time.Millisecond}
	}
	_, err := s.engine.Send(s.ctx, delayed...)
	s.must(err)
	s.until("they are due", func() bool {
		reply, err := s.engine.Heartbeat(s.ctx, posthaste.Heartbeat{Worker: w, Queues: []posthaste.QueueRef{s.ref()}})
		s.must(err)
		return reply.Looks[0].Found
	})
	s.sendOf(0, few)
	s.settle(released, s.claimed(w, few)...) // due, too; messages of other priorities that the lottery chose are due again
	s.sendOf(0, few)
	firsts := 0
	for range 2 * few {
		for _, p := range payloads(s.claim(w, 1)) {
			if p == "0" {
				firsts++
			}
		}
	}
	// One claim of eight starts with another priority, and one of 24 with this one. Of 80,
	// more than 20 do so once in 10 million runs.
	if firsts < 2*few-20 {
		s.Errorf("of %d claims of one message %d got one of priority 0, with %d of them waiting", 2*few, firsts, 2*few)
	}
}

// Other priorities get their share while messages of priority 0 keep arriving.
func noPriorityIsStarved(s *suite) {
	s.create(posthaste.QueueOptions{})
	for p := 1; p <= posthaste.MaxPriority; p++ {
		s.sendOf(p, 1)
	}
	w := s.register(time.Minute)
	seen := map[string]bool{}
	s.until("each priority had its turn", func() bool {
		s.sendOf(0, 2)
		for _, p := range payloads(s.claim(w, 1)) {
			seen[p] = true
		}
		return len(seen) == posthaste.MaxPriority+1
	})
}

// Attempts count in queues with priorities as in other queues.
func retriesOfEveryPriority(s *suite) {
	s.create(quick())
	for p := range posthaste.MaxPriority + 1 {
		s.sendOf(p, 1)
	}
	w := s.register(time.Minute)
	tries := map[posthaste.MessageID]int{}
	dead := 0
	s.until("all are dead", func() bool {
		for _, d := range s.claim(w, 4) {
			tries[d.MessageID]++
			if again := s.settle(failed, d); again[0].Outcome == posthaste.OutcomeDead {
				dead++
			}
			if r := s.trySettle(done, d); r[0].Settled {
				s.Errorf("delivery %d was settled twice", d.ID)
			}
		}
		return dead == 4
	})
	for m, n := range tries {
		if n != 3 {
			s.Errorf("message %d was tried %d times, want 3", m, n)
		}
	}
	letters, err := s.engine.DeadLetters(s.ctx, posthaste.DeadLetterFilter{Queue: s.queue})
	s.must(err)
	if len(letters.Items) != 4 {
		s.Errorf("%d dead letters, want 4", len(letters.Items))
	}
}

// duplicatesComeAgain: a request that comes again gets the same answer, also about a duplicate.
func (s *suite) duplicatesComeAgain(request posthaste.Idempotency, m posthaste.Message) {
	s.Helper()
	request.Key, request.Window = "duplicate", time.Hour
	s.sendOnce("k", 0)
	for range 2 {
		again, _, err := s.engine.SendOnce(s.ctx, request, posthaste.Message{Queue: s.queue, DedupeKey: "k"}, m)
		s.must(err)
		if !again[0].Duplicate || again[1].Duplicate {
			s.Errorf("a duplicate and a new message are told as %+v", again)
		}
	}
}

// A request with the same key is executed once, even if several arrive at once. With another
// digest it is rejected. A rejected request does not occupy its key.
func requestsThatComeAgain(s *suite) {
	s.create(posthaste.QueueOptions{})
	request := posthaste.Idempotency{Scope: "a path", Key: "key", Digest: []byte("one"), Window: time.Hour}
	two := []posthaste.Message{{Queue: s.queue, Payload: 1}, {Queue: s.queue, Payload: 2}}
	_, _, err := s.engine.SendOnce(s.ctx, request, posthaste.Message{Queue: "nowhere"})
	s.wantCode("to an unknown queue", err, posthaste.CodeNotFound)
	answers := make([][]posthaste.Sent, 8)
	var fresh atomic.Int32
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			sent, replayed, err := s.engine.SendOnce(s.ctx, request, two...)
			if err != nil {
				s.Errorf("request %d: %v", i, err)
			}
			if !replayed {
				fresh.Add(1)
			}
			answers[i] = sent
		})
	}
	all.Wait()
	if fresh.Load() != 1 {
		s.Errorf("%d of 8 equal requests were not replayed, want 1", fresh.Load())
	}
	for i, sent := range answers {
		if len(sent) != 2 || !slices.Equal(sent, answers[0]) {
			s.Errorf("request %d got %v, request 0 got %v", i, sent, answers[0])
		}
	}
	request.Digest = []byte("another")
	_, _, err = s.engine.SendOnce(s.ctx, request, two...)
	s.wantCode("another request", err, posthaste.CodeKeyReused)
	request.Scope = "another path"
	other, replayed, err := s.engine.SendOnce(s.ctx, request, two[0])
	s.must(err)
	if replayed || slices.Contains(answers[0], other[0]) {
		s.Errorf("in another scope the answer is %v, as in the first: %v", other, answers[0])
	}
	w := s.register(time.Minute)
	s.claimed(w, 3)
	s.none(w)
	request.Key, request.Window = "short", 20*time.Millisecond
	first, _, err := s.engine.SendOnce(s.ctx, request, two[0])
	s.must(err)
	s.until("its window is over", func() bool {
		request.Window = time.Hour
		again, _, err := s.engine.SendOnce(s.ctx, request, two[0])
		s.must(err)
		return again[0].ID != first[0].ID
	})
	s.duplicatesComeAgain(request, two[0])
	request.Key = ""
	_, _, err = s.engine.SendOnce(s.ctx, request, two[0])
	s.wantCode("an empty key", err, posthaste.CodeInvalid)
}

// A paused queue hands out nothing, while sending and settling continue. Resuming wakes
// sleeping workers. Each action is recorded.
func pausedQueues(s *suite) {
	s.create(posthaste.QueueOptions{})
	w := s.register(time.Minute)
	s.send(2)
	held := s.claim(w, 1)
	for range 2 {
		s.must(s.engine.Pause(posthaste.WithActor(s.ctx, "ada"), posthaste.OfQueue(s.queue), posthaste.PauseOptions{}))
	}
	s.send(1)
	s.none(w)
	if got := s.receive(10, time.Minute); len(got) != 0 {
		s.Errorf("%d messages were received of a paused queue", len(got))
	}
	reply, err := s.engine.Heartbeat(s.ctx, posthaste.Heartbeat{Worker: w, Queues: []posthaste.QueueRef{s.ref()}})
	s.must(err)
	if reply.Looks[0].Found {
		s.Error("a look found something in a paused queue")
	}
	s.settle(done, held...)
	infos, err := s.engine.Queues(s.ctx, s.queue)
	s.must(err)
	if infos[0].PausedAt.IsZero() {
		s.Error("the queue is not shown as paused")
	}
	bell, err := s.engine.Doorbell(s.ctx)
	s.must(err)
	defer bell.Close()
	woken, asleep := make(chan error, 1), make(chan struct{}, 1000)
	go func() {
		woken <- bell.Sleep(s.ctx, s.queue, func(context.Context) (posthaste.LookReply, error) {
			reply, err := s.engine.Heartbeat(s.ctx, posthaste.Heartbeat{Worker: w, Queues: []posthaste.QueueRef{s.ref()}})
			if err != nil {
				return posthaste.LookReply{}, err
			}
			asleep <- struct{}{}
			return reply.Looks[0], nil
		})
	}()
	<-asleep
	s.must(s.engine.Resume(posthaste.WithActor(s.ctx, "ada"), posthaste.OfQueue(s.queue)))
	s.must(<-woken)
	s.must(s.engine.Resume(posthaste.WithActor(s.ctx, "ada"), posthaste.OfQueue(s.queue)))
	s.claimed(w, 2)
	if infos, err = s.engine.Queues(s.ctx, s.queue); err != nil || !infos[0].PausedAt.IsZero() {
		s.Errorf("the queue is shown as paused: %+v, %v", infos, err)
	}
	actions := s.actions()
	var said []string
	for _, a := range actions {
		said = append(said, a.By+" "+a.Action)
	}
	if !slices.Equal(said, []string{"ada resume", "ada pause"}) {
		s.Errorf("on record are %v, newest first", said)
	}
	s.wantCode("pausing nothing", s.engine.Pause(posthaste.WithActor(s.ctx, "ada"), posthaste.OfQueue("nowhere"), posthaste.PauseOptions{}), posthaste.CodeNotFound)
	s.wantCode("resuming nothing", s.engine.Resume(posthaste.WithActor(s.ctx, "ada"), posthaste.OfQueue("nowhere")), posthaste.CodeNotFound)
}

// At-most-once messages are settled when they are handed out: they cannot be settled again,
// they are not rescued, and no repeated claim returns them.
func atMostOnce(s *suite) {
	s.wantCode("attempts of an at-most-once queue", s.engine.CreateQueue(s.ctx, "contradiction", posthaste.QueueOptions{Mode: posthaste.AtMostOnce, MaxAttempts: 3}), posthaste.CodeInvalid)
	s.wantCode("another mode", s.engine.CreateQueue(s.ctx, "mode", posthaste.QueueOptions{Mode: "twice"}), posthaste.CodeInvalid)
	s.create(posthaste.QueueOptions{Mode: posthaste.AtMostOnce})
	ids := s.send(300)
	w := s.register(time.Minute)
	req := s.request(w, 1)
	first, err := s.engine.Claim(s.ctx, req)
	s.must(err)
	again, err := s.engine.Claim(s.ctx, req)
	s.must(err)
	// One, a few, and more than a claim settles in one statement.
	got := slices.Concat(first.Deliveries, again.Deliveries, s.claim(w, 10), s.claim(w, 1000))
	if !slices.Equal(messageIDs(got), ids) {
		s.Fatalf("%d messages were handed out, want %d, each once", len(got), len(ids))
	}
	for _, d := range got {
		if !d.AtMostOnce {
			s.Fatalf("delivery %d does not say that it is settled", d.ID)
		}
	}
	for _, with := range []posthaste.Settlement{done, failed, released} {
		with.Delivery = got[0].ID
		_, err := s.engine.Settle(s.ctx, []posthaste.Settlement{with})
		s.wantCode("settling it as "+string(with.Outcome), err, posthaste.CodeConflict)
	}
	s.wantState(ids[0], posthaste.StateHandedOut)
	found, err := s.engine.Messages(s.ctx, posthaste.MessageFilter{Queue: s.queue, State: posthaste.StateHandedOut, Limit: 1000})
	s.must(err)
	if len(found.Items) != len(ids) {
		s.Errorf("%d messages are listed as handed out, want %d", len(found.Items), len(ids))
	}
	left, err := s.engine.Unsettled(s.ctx, w, req.Number+10)
	s.must(err)
	if len(left) != 0 {
		s.Errorf("%d deliveries count as unsettled", len(left))
	}
	s.must(s.engine.Unregister(s.ctx, w))
	if lost, err := s.engine.Maintain(s.ctx, posthaste.UpkeepRescue); err != nil || lost.Rescued != 0 {
		s.Errorf("%d were rescued, %v", lost.Rescued, err)
	}
	s.none(s.register(time.Minute))
}

func receivedAtMostOnce(s *suite) {
	s.create(posthaste.QueueOptions{Mode: posthaste.AtMostOnce})
	ids := s.send(5)
	got := append(s.receive(2, time.Millisecond), s.receive(10, time.Millisecond)...)
	if !slices.Equal(messageIDs(got), ids) {
		s.Fatalf("received %v, want %v", messageIDs(got), ids)
	}
	time.Sleep(2 * time.Millisecond) // longer than the lease, which does not apply
	if lost, err := s.engine.Maintain(s.ctx, posthaste.UpkeepRescue); err != nil || lost.Rescued != 0 {
		s.Errorf("%d were rescued, %v", lost.Rescued, err)
	}
	if more := s.receive(10, time.Minute); len(more) != 0 {
		s.Errorf("%d were received again", len(more))
	}
	_, err := s.engine.Settle(s.ctx, []posthaste.Settlement{{Delivery: got[0].ID, Outcome: posthaste.OutcomeDone}})
	s.wantCode("acknowledging it", err, posthaste.CodeConflict)
	s.wantState(ids[0], posthaste.StateHandedOut)
}
