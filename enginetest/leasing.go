package enginetest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var leasing = []test{
	{name: "LostWorker", run: lostWorker},
	{name: "HeartbeatKeepsAlive", run: heartbeatKeepsAlive},
	{name: "WorkersTellWhatTheyDo", run: workersTellWhatTheyDo},
	{name: "HeartbeatTellsTheFirstEnd", run: heartbeatTellsTheFirstEnd},
	{name: "HeartbeatLooks", run: heartbeatLooks, needs: features{SendAcross: true}},
	{name: "UnregisteredWorker", run: unregistered},
	{name: "DU5_LateSettleIsRefused", run: lateSettle},
	{name: "LP7_PoisonDiesAlone", run: poison},
	{name: "ReceivedLeaseEnds", run: leaseEnds},
	{name: "ReceiveTellsWhenDue", run: receiveTellsWhenDue, needs: features{Exact: true}},
	{name: "Extend", run: extend},
	{name: "DU3_RescuersThatRace", run: rescuersThatRace},
}

const short = 300 * time.Millisecond

// A heartbeat reports when the first lease of another worker ends, so that workers need not
// poll for it.
func heartbeatTellsTheFirstEnd(s *suite) {
	const own, others = time.Hour, time.Minute
	beat := func(worker posthaste.WorkerID) time.Duration {
		s.Helper()
		reply, err := s.engine.Heartbeat(s.ctx, posthaste.Heartbeat{Worker: worker})
		s.must(err)
		return reply.RescueIn
	}
	between := func(what string, in, least, most time.Duration) {
		s.Helper()
		if in <= least || in > most {
			s.Errorf("%s, the first lease ends in %s; want above %s and at most %s", what, in, least, most)
		}
	}
	longest := s.register(own)
	if in := beat(longest); in != 0 {
		s.Errorf("alone, it is told that a lease ends in %s", in)
	}
	other := s.register(others)
	between("beside one with a shorter lease", beat(longest), 0, others)
	s.until("its lease has begun to run out", func() bool { return beat(longest) < others-100*time.Millisecond })
	renewed := time.Now()
	beat(other)
	in := beat(longest) // on a machine of any speed, because it counts from the renewal
	between("after its heartbeat", in, others-time.Since(renewed)-10*time.Millisecond, others)
	between("to the other", beat(other), others, own)
	s.must(s.engine.Unregister(s.ctx, other))
	if in := beat(longest); in != 0 {
		s.Errorf("when the other has gone, it is told that a lease ends in %s", in)
	}
}

func lostWorker(s *suite) {
	s.create(posthaste.QueueOptions{})
	s.send(3)
	lost, other := s.register(short), s.register(time.Minute)
	d := s.claimed(lost, 3)
	s.settle(done, d[0])
	s.until("a heartbeat reports an overdue worker", func() bool {
		reply, err := s.engine.Heartbeat(s.ctx, posthaste.Heartbeat{Worker: other})
		s.must(err)
		return reply.Rescue
	})
	s.rescue(2)
	again := s.claimed(other, 2)
	if !slices.Equal(messageIDs(again), messageIDs(d[1:])) {
		s.Errorf("messages %v came again, want %v", messageIDs(again), messageIDs(d[1:]))
	}
	for _, d := range again {
		if d.Attempt != 2 || d.Alone || len(d.Story) != 1 || d.Story[0].Outcome != posthaste.OutcomeLost {
			s.Errorf("after a loss it is handed out as %+v", d)
		}
	}
	s.settle(done, again...)
	s.none(other)

	_, err := s.engine.Heartbeat(s.ctx, posthaste.Heartbeat{Worker: lost})
	s.wantCode("heartbeat of a lost worker", err, posthaste.CodeWorkerLost)
	_, err = s.engine.Claim(s.ctx, s.request(lost, 1))
	s.wantCode("claim of a lost worker", err, posthaste.CodeWorkerLost)
	var listed bool
	workers, err := s.engine.Workers(s.ctx)
	s.must(err)
	for _, w := range workers {
		listed = listed || w.ID == other && w.Name == "tester" && w.LostAt.IsZero() && !w.HeartbeatAt.Before(w.StartedAt)
	}
	if !listed {
		s.Errorf("the living worker is not among %+v", workers)
	}
}

func heartbeatKeepsAlive(s *suite) {
	s.create(posthaste.QueueOptions{})
	s.send(1)
	const lease = time.Second
	w := s.register(lease)
	d := s.claimed(w, 1)
	for end := time.Now().Add(2 * lease); time.Now().Before(end); time.Sleep(lease / 10) {
		before := time.Now()
		_, err := s.engine.Heartbeat(s.ctx, posthaste.Heartbeat{Worker: w})
		s.must(err)
		n, err := s.engine.Maintain(s.ctx, posthaste.UpkeepRescue)
		s.must(err)
		if n.Rescued == 0 {
			continue
		}
		if time.Since(before) < lease {
			s.Fatalf("%d deliveries of a living worker were rescued", n.Rescued)
		}
		// The machine stalled for longer than the lease: start again. A message that was lost
		// twice is handed out alone.
		w = s.register(lease)
		s.until("the lost messages are redelivered", func() bool {
			d = s.claimOrAlone(w, 1)
			return len(d) > 0
		})
		end = time.Now().Add(2 * lease)
	}
	s.settle(done, d...)
}

func heartbeatLooks(s *suite) {
	s.create(posthaste.QueueOptions{})
	first := s.ref()
	s.queue = "suite.2"
	s.create(posthaste.QueueOptions{})
	second := s.ref()
	s.queue = "suite.3"
	s.create(posthaste.QueueOptions{})
	third := s.ref()
	w := s.register(time.Minute)
	look := func() []posthaste.LookReply {
		reply, err := s.engine.Heartbeat(s.ctx, posthaste.Heartbeat{Worker: w, Queues: []posthaste.QueueRef{first, second, third}})
		s.must(err)
		if len(reply.Looks) != 3 {
			s.Fatalf("%d looks for 3 queues", len(reply.Looks))
		}
		return reply.Looks
	}
	for i, l := range look() {
		if l.Found || l.NextDue >= 0 {
			s.Errorf("look %d at an empty queue: %+v", i, l)
		}
	}
	_, err := s.engine.Send(s.ctx, posthaste.Message{Queue: second.Queue, Payload: 1, NoWake: true},
		posthaste.Message{Queue: third.Queue, Payload: 1, Delay: time.Hour})
	s.must(err)
	s.until("the look finds the message", func() bool { return look()[1].Found })
	if l := look(); l[0].Found || l[2].Found || l[2].NextDue < 50*time.Minute || l[2].NextDue > time.Hour {
		s.Errorf("looks %+v", l)
	}
	s.queue = second.Queue
	s.claimed(w, 1)
	if look()[1].Found {
		s.Error("the look finds a message that is handed out")
	}
}

func unregistered(s *suite) {
	s.create(posthaste.QueueOptions{})
	s.send(2)
	w, other := s.register(time.Hour), s.register(time.Hour)
	d := s.claimed(w, 2)
	s.settle(done, d[0])
	s.must(s.engine.Unregister(s.ctx, w))
	var again []posthaste.RawDelivery
	s.until("its deliveries are rescued", func() bool {
		_, err := s.engine.Maintain(s.ctx, posthaste.UpkeepRescue)
		s.must(err)
		again = s.claim(other, 10)
		return len(again) > 0
	})
	if len(again) != 1 || again[0].MessageID != d[1].MessageID || again[0].Attempt != 2 {
		s.Errorf("came again: %+v", again)
	}
	_, err := s.engine.Claim(s.ctx, s.request(w, 1))
	s.wantCode("claim after unregistering", err, posthaste.CodeWorkerLost)
}

func lateSettle(s *suite) {
	s.create(posthaste.QueueOptions{})
	s.send(4)
	lost, other := s.register(short), s.register(time.Minute)
	d := s.claimed(lost, 4)
	s.rescue(4)
	again := s.claimed(other, 4)
	for i, with := range []posthaste.Settlement{done, failed, hopeless, released} {
		if r := s.trySettle(with, d[i])[0]; r.Settled {
			s.Errorf("a lost attempt was settled as %s", with.Outcome)
		}
	}
	for _, d := range d {
		s.wantState(d.MessageID, posthaste.StateRunning)
	}
	s.settle(done, again...)
	s.none(other)
}

// poison: a message that crashes its workers becomes a dead letter and is handed out alone.
// The messages that were handed out with it do not become dead letters.
func poison(s *suite) {
	s.create(posthaste.QueueOptions{MaxAttempts: 2})
	ids := s.send(6)
	bad := ids[2]
	innocent := map[posthaste.MessageID]bool{}
	deaths, alone := 0, 0
	s.until("the poison is dead and the others are done", func() bool {
		w := s.register(short)
		deliveries := s.claimOrAlone(w, 10)
		killed := slices.ContainsFunc(deliveries, func(d posthaste.RawDelivery) bool { return d.MessageID == bad })
		for _, d := range deliveries {
			if d.Alone && d.MessageID == bad {
				alone++
			}
			if !killed {
				s.settle(done, d)
				innocent[d.MessageID] = true
			}
		}
		if killed { // the process is gone: this claim is never settled
			deaths++
			s.rescue(len(deliveries))
		} else {
			s.must(s.engine.Unregister(s.ctx, w))
		}
		return s.state(bad).State == posthaste.StateDead && len(innocent) == 5
	})
	if deaths != 4 || alone != 2 {
		s.Errorf("it killed %d workers, %d of them alone; want 4 and 2", deaths, alone)
	}
	for _, id := range ids {
		if id != bad {
			s.wantState(id, posthaste.StateDone)
		}
	}
	dead, err := s.engine.DeadLetters(s.ctx, posthaste.DeadLetterFilter{Queue: s.queue})
	s.must(err)
	if len(dead.Items) != 1 || dead.Items[0].ID != bad || strings.TrimSpace(dead.Items[0].Error) == "" {
		s.Errorf("dead letters %+v", dead.Items)
	}
}

func leaseEnds(s *suite) {
	s.create(posthaste.QueueOptions{})
	s.send(2)
	before := time.Now()
	d := s.receive(2, short)
	if len(d) != 2 {
		s.Fatalf("received %d, want 2", len(d))
	}
	s.settle(done, d[0])
	again := s.receive(2, time.Minute)
	if len(again) != 0 && time.Since(before) < short {
		s.Fatalf("received %d that another consumer holds", len(again))
	}
	// Receivers need no workers: they rescue expired leases themselves.
	s.until("the other comes again", func() bool {
		if len(again) == 0 {
			again = s.receive(2, time.Minute)
		}
		return len(again) > 0
	})
	if len(again) != 1 || again[0].MessageID != d[1].MessageID || again[0].Attempt != 2 || time.Since(before) < short {
		s.Errorf("after %s came %+v", time.Since(before), again)
	}
	if s.trySettle(done, d[1])[0].Settled {
		s.Error("settled after its lease had ended and it was handed out again")
	}
	s.settle(done, again...)
}

func receiveTellsWhenDue(s *suite) {
	s.create(posthaste.QueueOptions{})
	receive := func() posthaste.ReceiveReply {
		reply, err := s.engine.Receive(s.ctx, posthaste.ReceiveRequest{QueueRef: s.ref(), Max: 1, Lease: time.Minute})
		s.must(err)
		return reply
	}
	if reply := receive(); len(reply.Deliveries) != 0 || reply.NextDue >= 0 || reply.AtLimit {
		s.Errorf("an empty queue was answered by %+v", reply)
	}
	_, err := s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Payload: 1, Delay: time.Hour})
	s.must(err)
	s.until("it tells when the message falls due", func() bool {
		reply := receive()
		return len(reply.Deliveries) == 0 && reply.NextDue > 50*time.Minute && reply.NextDue <= time.Hour
	})
}

func extend(s *suite) {
	s.create(posthaste.QueueOptions{})
	s.send(3)
	d := s.receive(3, 3*time.Second)
	s.settle(done, d[2])
	results, err := s.engine.Extend(s.ctx, posthaste.ExtendRequest{Deliveries: []posthaste.DeliveryID{d[0].ID, d[2].ID, 1 << 50}, Lease: time.Minute})
	s.must(err)
	if len(results) != 3 || !results[0].Settled || results[1].Settled || results[2].Settled {
		s.Fatalf("extending one held, one settled and one unknown: %+v", results)
	}
	s.rescue(1) // only the one that was not extended
	if n, err := s.engine.Maintain(s.ctx, posthaste.UpkeepRescue); err != nil || n.Rescued != 0 {
		s.Errorf("%d more were rescued, error %v", n.Rescued, err)
	}
	s.settle(done, d[0])
	if again := s.receive(3, time.Minute); len(again) != 1 || again[0].MessageID != d[1].MessageID {
		s.Errorf("came again: %+v", again)
	}
	results, err = s.engine.Extend(s.ctx, posthaste.ExtendRequest{Deliveries: []posthaste.DeliveryID{d[1].ID}, Lease: time.Minute})
	if err != nil || results[0].Settled {
		s.Errorf("extending a lost delivery: %+v, %v", results, err)
	}
}

func rescuersThatRace(s *suite) {
	s.create(posthaste.QueueOptions{})
	const n, rescuers = 100, 4
	s.send(n)
	s.claimed(s.register(short), n/2)
	for i := 0; i < n/2; i += 10 {
		if got := s.receive(10, short); len(got) != 10 {
			s.Fatalf("received %d, want 10", len(got))
		}
	}
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	var total atomic.Int64
	var all sync.WaitGroup
	for range rescuers {
		all.Go(func() {
			for ctx.Err() == nil {
				lost, err := s.engine.Maintain(s.ctx, posthaste.UpkeepRescue)
				if err != nil {
					s.Error(err)
					return
				}
				total.Add(int64(lost.Rescued))
			}
		})
	}
	w := s.register(time.Minute)
	// On a slow machine, a receive may find that the first lease has ended and rescue it. Then
	// some messages are lost twice and are handed out alone, and only the attempts show how
	// many were lost.
	var again []posthaste.RawDelivery
	s.until("all come again", func() bool {
		again = append(again, s.claimOrAlone(w, n)...)
		return len(again) >= n
	})
	stop()
	all.Wait()
	s.none(w)
	lost := 0
	for _, d := range again {
		lost += d.Attempt - 1
	}
	distinct := len(slices.Compact(messageIDs(again)))
	if distinct != n || lost < n || lost > n+n/2 || int(total.Load()) > lost {
		s.Errorf("%d rescued, %d lost by their attempts, and %d distinct came again, want %d", total.Load(), lost, distinct, n)
	}
}

// workersTellWhatTheyDo checks that the state of the last heartbeat is listed.
func workersTellWhatTheyDo(s *suite) {
	w, err := s.engine.Register(s.ctx, posthaste.WorkerInfo{Name: "host/1", Version: "v1", Lease: time.Minute})
	s.must(err)
	find := func() posthaste.WorkerStatus {
		s.Helper()
		all, err := s.engine.Workers(s.ctx)
		s.must(err)
		i := slices.IndexFunc(all, func(x posthaste.WorkerStatus) bool { return x.ID == w })
		if i < 0 {
			s.Fatalf("worker %d is not among %+v", w, all)
		}
		return all[i]
	}
	if state := find().State; state.Loads != nil || state.Running != nil {
		s.Errorf("a worker without a heartbeat has the state %+v", state)
	}
	state := posthaste.WorkerState{
		Concurrency: 9,
		Loads:       []posthaste.WorkerLoad{{Queue: s.queue, Subscription: posthaste.DefaultSubscription, Concurrency: 7, Running: 2, Claimed: 30}},
		Running:     []posthaste.RunningMessage{{Message: 1 << 60, Queue: s.queue, Subscription: posthaste.DefaultSubscription, Kind: "é\"\n", Attempt: 3, Ran: 90 * time.Second}},
	}
	_, err = s.engine.Heartbeat(s.ctx, posthaste.Heartbeat{Worker: w, State: state})
	s.must(err)
	if got := find().State; got.Concurrency != 9 || !slices.Equal(got.Loads, state.Loads) || !slices.Equal(got.Running, state.Running) {
		s.Errorf("the state is %+v, want %+v", got, state)
	}
	_, err = s.engine.Heartbeat(s.ctx, posthaste.Heartbeat{Worker: w})
	s.must(err)
	if got := find().State; got.Loads != nil || got.Running != nil {
		s.Errorf("after a heartbeat without a state it is %+v", got)
	}
	s.must(s.engine.Unregister(s.ctx, w))
}
