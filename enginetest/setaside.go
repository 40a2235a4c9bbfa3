package enginetest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var setAside = []test{
	{name: "R1_SetAsideByManyClaimers", run: setAsideByMany, needs: features{Exact: true}},
	{name: "R1_LooksTellOnlyOwnKinds", run: looksTellOwnKinds, needs: features{Exact: true}},
	{name: "R1_SleepersOfTheKindWake", run: sleepersOfKindWake, needs: features{Exact: true}},
	{name: "R1_SetAsideGivesTokensBack", run: setAsideGivesTokensBack, needs: features{Limits: true}},
	{name: "R1_SetAsideFreesItsPlace", run: setAsideFreesPlace, needs: features{Limits: true}},
	{name: "R1_SetAsideHoldsUpItsKey", run: setAsideHoldsUpKey, needs: features{Ordered: true}},
	{name: "R1_SetAsideOfKeys", run: setAsideOfKeys, needs: features{Limits: true}},
	{name: "R1_SetAsideCancelled", run: setAsideCancelled, needs: features{Withdrawal: true, Exact: true}},
	{name: "R1_SetAsideRescheduled", run: setAsideRescheduled, needs: features{Withdrawal: true, Exact: true}},
	{name: "R1_SetAsidePurged", run: setAsidePurged, needs: features{Withdrawal: true, Exact: true}},
	{name: "R1_SetAsideExpires", run: setAsideExpires, needs: features{Attempts: true, Exact: true}},
	{name: "R1_SetAsideIsCounted", run: setAsideIsCounted, needs: features{Exact: true}},
	{name: "R1_SetAsideIsListed", run: setAsideIsListed, needs: features{Search: true}},
	{name: "R1_RunOfSetAside", run: runOfSetAside, needs: features{Exact: true}},
	{name: "R1_RunOfPausedAside", run: runOfPausedAside, needs: features{PauseKinds: true}},
}

// setAsideByMany: of concurrent claimers, each message that was set aside goes to one.
func setAsideByMany(s *suite) {
	s.create(quick())
	var kinds []string
	for range 100 {
		kinds = append(kinds, "sms", "fax")
	}
	ids, _ := s.sentAside(kinds...)
	came := map[posthaste.MessageID][]string{}
	s.claimConcurrently(func() posthaste.WorkerID { return s.handles("sms", "fax") }, came, len(ids))
	s.wantOnce(came, ids)
}

// claimConcurrently claims with four workers until n messages have come, and adds the kinds of their
// deliveries to came.
func (s *suite) claimConcurrently(register func() posthaste.WorkerID, came map[posthaste.MessageID][]string, n int) {
	s.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	for range 4 {
		w := register()
		all.Go(func() {
			for number := int64(1); s.ctx.Err() == nil; number++ {
				reply, err := s.engine.Claim(s.ctx, posthaste.ClaimRequest{Worker: w, Number: number, QueueRef: s.ref(), Max: 7})
				if err != nil {
					s.Error(err)
					return
				}
				mu.Lock()
				for _, d := range reply.Deliveries {
					came[d.MessageID] = append(came[d.MessageID], d.Kind)
				}
				over := len(came) >= n
				mu.Unlock()
				if over {
					return
				}
			}
		})
	}
	all.Wait()
}

// wantOnce checks that each message was handed out once.
func (s *suite) wantOnce(came map[posthaste.MessageID][]string, ids []posthaste.MessageID) {
	s.Helper()
	for _, id := range ids {
		if n := len(came[id]); n != 1 {
			s.Errorf("message %d was handed out %d times", id, n)
		}
	}
}

func (s *suite) look(w posthaste.WorkerID) posthaste.LookReply {
	s.Helper()
	reply, err := s.engine.Heartbeat(s.ctx, posthaste.Heartbeat{Worker: w, Queues: []posthaste.QueueRef{s.ref()}})
	s.must(err)
	return reply.Looks[0]
}

// looksTellOwnKinds: a look does not tell a worker of messages that its claims do not get.
func looksTellOwnKinds(s *suite) {
	s.create(quick())
	_, old := s.sentAside("sms", "fax")
	s.none(old)
	for range 3 {
		if l := s.look(old); l.Found || l.NextDue >= 0 {
			s.Errorf("a worker of other kinds is told %+v", l)
		}
	}
	reply, err := s.engine.Claim(s.ctx, s.request(old, 1))
	if err != nil || reply.NextDue >= 0 || reply.AloneWaiting {
		s.Errorf("its claim says %+v: %v", reply, err)
	}
	for what, w := range map[string]posthaste.WorkerID{"that handles the kind": s.handles("sms"), "that handles all": s.register(time.Minute)} {
		if l := s.look(w); !l.Found {
			s.Errorf("a worker %s is told %+v", what, l)
		}
	}
}

// sleepersOfKindWake: setting aside wakes a worker that handles the kind.
func sleepersOfKindWake(s *suite) {
	s.create(quick())
	ids := s.sendKinds("sms")
	held := s.claimed(s.handles("mail"), 1)
	knows := s.handles("sms")
	bell, err := s.engine.Doorbell(s.ctx)
	s.must(err)
	defer bell.Close()
	var got []posthaste.RawDelivery
	slept := false
	s.until("the sleeper gets it", func() bool {
		s.must(bell.Sleep(s.ctx, s.queue, func(context.Context) (posthaste.LookReply, error) {
			reply, err := s.engine.Claim(s.ctx, s.request(knows, 1))
			if got = reply.Deliveries; len(got) == 0 && err == nil && !slept {
				slept = true
				s.settle(aside, held...)
			}
			return posthaste.LookReply{Found: len(got) > 0, NextDue: -1}, err
		}))
		return len(got) > 0
	})
	s.wantFirst(got, ids...)
}

// setAsideGivesTokensBack: of a rate, a message that was set aside takes one token.
func setAsideGivesTokensBack(s *suite) {
	s.limited(posthaste.QueueLimits{RateLimit: posthaste.Rate{Limit: 2, Per: 100 * time.Hour, Burst: 2}})
	ids, _ := s.sentAside("sms", "fax")
	knows := s.handles("sms", "fax")
	got := s.claimed(knows, 2)
	s.wantFirst(got, ids...)
	s.settle(done, got...)
	s.sendKinds("sms")
	s.none(knows)
}

func setAsideFreesPlace(s *suite) {
	s.limited(posthaste.QueueLimits{Concurrency: 1})
	ids := s.sendKinds("sms", "mail")
	old := s.handles("mail")
	got := s.claimed(old, 1)
	s.wantFirst(got, ids[0])
	s.settle(aside, got...)
	got = s.claimed(old, 1)
	s.wantFirst(got, ids[1])
	knows := s.handles("sms")
	s.none(knows) // it counts as any other
	s.settle(done, got...)
	s.wantFirst(s.claimed(knows, 1), ids[0])
}

// setAsideHoldsUpKey: in an ordered queue it waits for a moment, and so do later messages of its
// key.
func setAsideHoldsUpKey(s *suite) {
	o := quick()
	o.Ordered = true
	s.create(o)
	ids := s.sendMessages(posthaste.Message{Key: "a", Kind: "sms"}, posthaste.Message{Key: "a", Kind: "mail"}, posthaste.Message{Key: "b", Kind: "mail"})
	old := s.handles("mail")
	var held []posthaste.RawDelivery
	s.until("the first messages of both keys come", func() bool {
		held = append(held, s.claim(old, 10)...)
		return slices.Contains(messageIDs(held), ids[0]) && slices.Contains(messageIDs(held), ids[2])
	})
	began := time.Now()
	for _, d := range held {
		switch d.MessageID {
		case ids[0]:
			if r := s.settle(aside, d)[0]; r.Outcome != posthaste.OutcomeReleased || r.DueAt.IsZero() {
				s.Errorf("setting aside was answered %+v", r)
			}
		case ids[1]:
			s.settle(released, d)
		case ids[2]:
			s.settle(done, d)
		}
	}
	var order []posthaste.MessageID
	all := s.register(time.Minute)
	s.until("both messages of the key are done", func() bool {
		for _, w := range []posthaste.WorkerID{old, all} {
			for _, d := range s.claim(w, 1) {
				if waited := time.Since(began); waited < posthaste.SetAsideWait {
					s.Fatalf("message %d came after %s, attempt %d", d.MessageID, waited, d.Attempt)
				}
				order = append(order, d.MessageID)
				s.wantFirst([]posthaste.RawDelivery{d}, d.MessageID)
				s.settle(done, d)
			}
		}
		return len(order) == 2
	})
	if !slices.Equal(order, ids[:2]) {
		s.Errorf("the messages of the key came in the order %v, want %v", order, ids[:2])
	}
}

// setAsideOfKeys: in a queue that looks at keys there is no place apart, and a message that was
// set aside waits for a moment. Its tokens are given back.
func setAsideOfKeys(s *suite) {
	o := quick()
	o.Limits = posthaste.QueueLimits{KeyRateLimit: posthaste.Rate{Limit: 1, Per: 100 * time.Hour, Burst: 1}, RateLimit: posthaste.Rate{Limit: 2, Per: 100 * time.Hour, Burst: 2}}
	s.create(o)
	ids := s.sendMessages(posthaste.Message{Key: "a", Kind: "sms"}, posthaste.Message{Key: "b", Kind: "mail"})
	old := s.handles("mail")
	held := s.claimed(old, 2)
	began := time.Now()
	for _, d := range held {
		if d.MessageID == ids[0] {
			s.settle(aside, d)
		} else {
			s.settle(done, d)
		}
	}
	got := s.claimed(old, 1)
	if waited := time.Since(began); waited < posthaste.SetAsideWait {
		s.Errorf("it came after %s", waited)
	}
	s.wantFirst(got, ids[0])
	s.settle(done, got...)
	s.sendMessages(posthaste.Message{Key: "c"})
	s.none(old)
}

func setAsideCancelled(s *suite) {
	s.create(quick())
	ids, _ := s.sentAside("sms", "sms", "fax")
	for _, id := range ids[:2] {
		w, err := s.engine.Cancel(posthaste.WithActor(s.ctx, "ada"), id)
		if err != nil || len(w) != 1 || !w[0].InTime || w[0].State != posthaste.StateCancelled {
			s.Errorf("cancelling is answered %+v: %v", w, err)
		}
	}
	all := s.register(time.Minute)
	got := s.claimed(all, 1)
	s.wantFirst(got, ids[2])
	if w, err := s.engine.Cancel(posthaste.WithActor(s.ctx, "ada"), ids[2]); err != nil || w[0].InTime {
		s.Errorf("cancelling what runs is answered %+v: %v", w, err)
	}
	s.settle(done, got...)
	s.none(all)
	s.wantSetAside()
}

// setAsideRescheduled: a message that was set aside and then rescheduled waits for its time.
func setAsideRescheduled(s *suite) {
	s.create(quick())
	ids, old := s.sentAside("sms", "sms")
	for i, at := range []time.Time{time.Now().Add(time.Hour), time.Now().Add(-time.Hour)} {
		w, err := s.engine.Reschedule(posthaste.WithActor(s.ctx, "ada"), ids[i], at)
		if err != nil || len(w) != 1 || !w[0].InTime {
			s.Errorf("rescheduling is answered %+v: %v", w, err)
		}
	}
	s.wantState(ids[0], posthaste.StateScheduled)
	all := s.register(time.Minute)
	s.settle(done, s.comesTo(all, old, ids[1]))
	s.none(all)
	s.wantState(ids[0], posthaste.StateScheduled)
}

func setAsidePurged(s *suite) {
	s.create(quick())
	ids, _ := s.sentAside("sms", "sms", "fax")
	s.sendKinds("mail")
	knows := s.handles("fax")
	held := s.claimed(knows, 2) // one of each side
	purged, err := s.engine.PurgeQueue(posthaste.WithActor(s.ctx, "ada"), s.queue)
	if err != nil || len(purged) != 1 || purged[0].Messages != 2 {
		s.Errorf("purging is answered %+v: %v", purged, err)
	}
	s.settle(done, held...)
	s.none(s.register(time.Minute))
	if got := s.receive(10, time.Minute); len(got) > 0 {
		s.Errorf("%d are received after the purge", len(got))
	}
	s.wantState(ids[2], posthaste.StateDone)
	s.wantSetAside()
	again, _ := s.sentAside("sms")
	s.wantFirst(s.claimed(s.handles("sms"), 1), again...)
}

func setAsideExpires(s *suite) {
	o := quick()
	o.MaxAge = maxAge
	s.create(o)
	var ids []posthaste.MessageID
	s.until("it is set aside in time", func() bool {
		ids = s.sendKinds("sms")
		old := s.handles("mail")
		for begun := time.Now(); time.Since(begun) < 2*maxAge; {
			if got := s.claim(old, 1); len(got) > 0 {
				return s.trySettle(aside, got...)[0].Settled
			}
		}
		return false
	})
	s.age()
	s.none(s.register(time.Minute))
	s.wantState(ids[0], posthaste.StateExpired)
	s.wantSetAside()
}

// wantSetAside waits until exactly these are told as set aside, by kind. It does not compare
// ages.
func (s *suite) wantSetAside(want ...posthaste.SetAside) (info posthaste.SubscriptionInfo) {
	s.Helper()
	s.until("the messages that were set aside are counted", func() bool {
		info = s.counted()
		return slices.EqualFunc(info.SetAside, want, func(a, b posthaste.SetAside) bool {
			a.OldestAge = b.OldestAge
			return a == b
		})
	})
	return info
}

func setAsideIsCounted(s *suite) {
	s.create(quick())
	_, old := s.sentAside("sms", "fax", "sms", "")
	fax := s.handles("fax")
	info := s.wantSetAside(posthaste.SetAside{Kind: "", Waiting: 1}, posthaste.SetAside{Kind: "fax", Waiting: 1, Known: true}, posthaste.SetAside{Kind: "sms", Waiting: 2})
	for _, each := range info.SetAside {
		if each.OldestAge <= 0 || each.OldestAge > 2*time.Minute {
			s.Errorf("kind %q is %s old", each.Kind, each.OldestAge)
		}
	}
	s.until("they are counted as waiting", func() bool {
		info := s.wantSetAside(info.SetAside...)
		return info.Depth == 4 && info.InFlight == 0 && info.Lost == 0 && info.Retried == 0
	})
	s.settle(done, s.claimed(fax, 1)...)
	s.wantSetAside(posthaste.SetAside{Kind: "", Waiting: 1}, posthaste.SetAside{Kind: "sms", Waiting: 2})
	known := s.handles("sms")
	s.wantSetAside(posthaste.SetAside{Kind: "", Waiting: 1}, posthaste.SetAside{Kind: "sms", Waiting: 2, Known: true})
	s.must(s.engine.Unregister(s.ctx, known))
	s.wantSetAside(posthaste.SetAside{Kind: "", Waiting: 1}, posthaste.SetAside{Kind: "sms", Waiting: 2})
	s.none(old)
	s.settle(done, s.claimed(s.register(time.Minute), 3)...)
	s.wantSetAside()
	s.must(s.engine.DropQueue(posthaste.WithActor(s.ctx, "ada"), s.queue, posthaste.DropOptions{}))
	s.create(quick())
	s.wantSetAside()
}

// runOfSetAside: running a message names that no worker handles its kind, until one does.
func runOfSetAside(s *suite) {
	s.create(quick())
	ids, _ := s.sentAside("sms", "")
	other := s.sendKinds("mail")[0]
	wantHeld := func(id posthaste.MessageID, want ...string) {
		s.Helper()
		results, err := s.engine.RunMessage(s.ctx, id)
		s.must(err)
		if len(results) != 1 || !results[0].Due || !slices.Equal(results[0].HeldBy, want) {
			s.Errorf("running message %d gave %+v, want it held by %q", id, results, want)
		}
	}
	wantHeld(ids[0], "set_aside")
	wantHeld(ids[1], "set_aside")
	wantHeld(other)
	s.handles("sms")
	wantHeld(ids[0])
	wantHeld(ids[1], "set_aside")
}

// runOfPausedAside: of a message that was set aside because its kind is paused only the pause is
// named.
func runOfPausedAside(s *suite) {
	s.create(quick())
	s.pauseKind("sms")
	id := s.sendKinds("sms", "mail")[0]
	s.settle(done, s.claimed(s.register(time.Minute), 1)...)
	results, err := s.engine.RunMessage(s.ctx, id)
	s.must(err)
	if len(results) != 1 || !slices.Equal(results[0].HeldBy, []string{"kind_paused"}) {
		s.Errorf("it is held by %+v", results)
	}
}

func setAsideIsListed(s *suite) {
	s.create(quick())
	ids, _ := s.sentAside("sms", "fax")
	ids = append(ids, s.sendKinds("mail")...)
	for _, f := range []posthaste.MessageFilter{{Queue: s.queue}, {Queue: s.queue, State: posthaste.StateReady}} {
		page, err := s.engine.Messages(s.ctx, f)
		s.must(err)
		var got []posthaste.MessageID
		for _, m := range page.Items {
			got = append(got, m.ID)
		}
		slices.Sort(got)
		if !slices.Equal(got, ids) {
			s.Errorf("by %+v messages %v are listed, want %v", f, got, ids)
		}
	}
	s.wantState(ids[0], posthaste.StateReady)
}
