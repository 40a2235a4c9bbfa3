package enginetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var kinds = []test{
	{name: "R1_SetAsideWaitsForItsKind", run: setAsideWaits, needs: features{Exact: true}},
	{name: "R1_SetAsideToCatchAll", run: setAsideToCatchAll, needs: features{Exact: true}},
	{name: "R1_SetAsideToReceiver", run: setAsideToReceiver},
	{name: "R1_SetAsideIsNoAttempt", run: setAsideIsNoAttempt, needs: features{Exact: true}},
	{name: "R1_SetAsideIsRetried", run: setAsideIsRetried, needs: features{Exact: true}},
	{name: "R1_SetAsideIsRedelivered", run: setAsideIsRedelivered, needs: features{Exact: true}},
	{name: "R1_SetAsideRunsAlone", run: setAsideRunsAlone, needs: features{Exact: true}},
	{name: "R1_SetAsideClaimedAgain", run: setAsideClaimedAgain, needs: features{Exact: true}},
	{name: "R1_BothSidesProgress", run: bothSidesProgress, needs: features{Exact: true}},
	{name: "R1_ManyKinds", run: manyKinds, needs: features{Exact: true}},
	{name: "R1_SetAsidePerSubscription", run: setAsidePerSubscription, needs: features{Subscriptions: true, Exact: true}},
}

// handles registers a worker that handles only some kinds.
func (s *suite) handles(kinds ...string) posthaste.WorkerID {
	s.Helper()
	id, err := s.engine.Register(s.ctx, posthaste.WorkerInfo{Name: "tester", Lease: time.Minute, Kinds: map[posthaste.QueueRef][]string{s.ref(): kinds}})
	s.must(err)
	return id
}

// sendKinds sends a message of each kind.
func (s *suite) sendKinds(kinds ...string) []posthaste.MessageID {
	s.Helper()
	messages := make([]posthaste.Message, len(kinds))
	for i, kind := range kinds {
		messages[i] = posthaste.Message{Kind: kind, Payload: i}
	}
	return s.sendMessages(messages...)
}

// sentAside sends a message of each kind, and a worker sets them aside. It handles none of them.
func (s *suite) sentAside(kinds ...string) (ids []posthaste.MessageID, by posthaste.WorkerID) {
	s.Helper()
	ids, by = s.sendKinds(kinds...), s.handles("another kind")
	s.settle(aside, s.claimed(by, len(kinds))...)
	return ids, by
}

// wantFirst checks that deliveries are of the messages, in any order, and of first attempts.
func (s *suite) wantFirst(deliveries []posthaste.RawDelivery, ids ...posthaste.MessageID) {
	s.Helper()
	slices.Sort(ids)
	if got := messageIDs(deliveries); !slices.Equal(got, ids) {
		s.Fatalf("messages %v came, want %v", got, ids)
	}
	s.unburnt(deliveries)
}

func setAsideWaits(s *suite) {
	s.create(quick())
	ids := s.sendKinds("sms", "mail", "sms")
	old, knows := s.handles("mail"), s.handles("fax", "mail", "sms")
	for _, d := range s.claimed(old, 3) {
		if d.Kind == "mail" {
			s.settle(done, d)
			continue
		}
		if r := s.settle(aside, d)[0]; r.Outcome != posthaste.OutcomeReleased {
			s.Errorf("setting aside is recorded as %q, want %q", r.Outcome, posthaste.OutcomeReleased)
		}
		if s.trySettle(aside, d)[0].Settled || s.trySettle(done, d)[0].Settled {
			s.Error("a message that was set aside was settled again")
		}
	}
	none := s.handles() // no kind at all
	for range 5 {
		s.none(old)
		s.none(none)
	}
	s.wantState(ids[0], posthaste.StateReady)
	got := s.claimed(knows, 2)
	s.wantFirst(got, ids[0], ids[2])
	s.wantState(ids[0], posthaste.StateRunning)
	s.settle(done, got...)
	s.wantState(ids[0], posthaste.StateDone)
	s.none(knows)
}

// setAsideToCatchAll: a worker that names no kinds for the subscription handles all.
func setAsideToCatchAll(s *suite) {
	s.create(quick())
	elsewhere, err := s.engine.Register(s.ctx, posthaste.WorkerInfo{Name: "tester", Lease: time.Minute, Kinds: map[posthaste.QueueRef][]string{
		{Queue: "elsewhere"}: {"mail"}, {Queue: s.queue, Subscription: "other"}: {"mail"}}})
	s.must(err)
	for _, w := range []posthaste.WorkerID{s.register(time.Minute), elsewhere} {
		ids, old := s.sentAside("sms", "")
		s.none(old)
		got := s.claimed(w, 2)
		s.wantFirst(got, ids...)
		s.settle(done, got...)
	}
	// The name of the default subscription may be written out.
	ids, _ := s.sentAside("sms", "fax")
	named, err := s.engine.Register(s.ctx, posthaste.WorkerInfo{Name: "tester", Lease: time.Minute, Kinds: map[posthaste.QueueRef][]string{s.ref().Normal(): {"fax"}}})
	s.must(err)
	s.wantFirst(s.claimed(named, 1), ids[1])
	s.none(named)
}

func setAsideToReceiver(s *suite) {
	s.create(quick())
	ids, _ := s.sentAside("sms", "fax")
	var got []posthaste.RawDelivery
	s.until("both are received", func() bool {
		got = append(got, s.receive(10, time.Minute)...)
		return len(got) == 2
	})
	s.wantFirst(got, ids...)
	s.settle(done, got...)
	s.wantState(ids[0], posthaste.StateDone)
}

func setAsideIsNoAttempt(s *suite) {
	s.create(posthaste.QueueOptions{MaxAttempts: 1})
	ids, old := s.sentAside("sms")
	all := s.register(time.Minute)
	for range 5 { // also by a worker that has said that it handles all kinds
		got := s.claimed(all, 1)
		s.wantFirst(got, ids...)
		s.settle(aside, got...)
		s.none(old)
	}
	if r := s.settle(failed, s.claimed(s.handles("sms"), 1)...)[0]; r.Outcome != posthaste.OutcomeDead {
		s.Errorf("the only attempt became %s", r.Outcome)
	}
	s.wantState(ids[0], posthaste.StateDead)
	if attempts := s.state(ids[0]).Attempts; len(attempts) == 0 || attempts[len(attempts)-1].Attempt != 1 {
		s.Errorf("the attempts are %+v", attempts)
	}
}

// comesTo claims for w until a message comes. If old claims it before, it sets it aside: a retry
// may go back to all workers.
func (s *suite) comesTo(w, old posthaste.WorkerID, id posthaste.MessageID) (got posthaste.RawDelivery) {
	s.Helper()
	s.until(fmt.Sprintf("message %d comes", id), func() bool {
		s.settle(aside, s.claim(old, 10)...)
		for _, d := range s.claim(w, 1) {
			got = d
		}
		return got.MessageID == id
	})
	return got
}

func setAsideIsRetried(s *suite) {
	s.create(quick())
	ids, old := s.sentAside("sms")
	knows := s.handles("sms")
	for attempt := 1; attempt <= 3; attempt++ {
		d := s.comesTo(knows, old, ids[0])
		if d.Attempt != attempt || len(d.Story) != attempt-1 {
			s.Errorf("it comes with attempt %d and attempts %+v, want attempt %d", d.Attempt, d.Story, attempt)
		}
		s.settle(failed, d)
	}
	s.wantState(ids[0], posthaste.StateDead)
	_, err := s.engine.Replay(posthaste.WithActor(s.ctx, "ada"), posthaste.DeadLetterFilter{IDs: ids})
	s.must(err)
	s.settle(done, s.comesTo(knows, old, ids[0]))
	s.wantState(ids[0], posthaste.StateDone)
}

func setAsideIsRedelivered(s *suite) {
	s.create(quick())
	ids, old := s.sentAside("sms")
	crashed, err := s.engine.Register(s.ctx, posthaste.WorkerInfo{Name: "tester", Lease: short, Kinds: map[posthaste.QueueRef][]string{s.ref(): {"sms"}}})
	s.must(err)
	s.wantFirst(s.claimed(crashed, 1), ids...)
	s.rescue(1)
	d := s.comesTo(s.handles("sms"), old, ids[0])
	if d.Attempt != 2 || len(d.Story) != 1 || d.Story[0].Outcome != posthaste.OutcomeLost {
		s.Errorf("after a crash it comes with attempt %d and attempts %+v", d.Attempt, d.Story)
	}
	s.settle(done, d)
	s.none(old)
}

// setAsideRunsAlone: a message that was lost twice runs alone, also after it was set aside.
func setAsideRunsAlone(s *suite) {
	s.create(posthaste.QueueOptions{MaxAttempts: 9, BackoffBase: time.Millisecond, BackoffMax: time.Millisecond})
	ids := s.sendKinds("sms")
	for range 2 {
		s.until("it is received", func() bool { return len(s.receive(1, time.Millisecond)) == 1 })
		s.rescue(1)
	}
	old, knows := s.handles("mail"), s.handles("mail", "sms")
	var got []posthaste.RawDelivery
	s.until("it comes alone", func() bool {
		got = s.claimOrAlone(old, 10)
		return len(got) > 0
	})
	s.settle(aside, got...)
	req := s.request(old, 10)
	req.AllowAlone = true
	reply, err := s.engine.Claim(s.ctx, req)
	s.must(err)
	if len(reply.Deliveries) > 0 || reply.AloneWaiting {
		s.Errorf("a worker of other kinds gets %d and is to be idle %v", len(reply.Deliveries), reply.AloneWaiting)
	}
	s.sendKinds("mail", "mail")
	got = nil
	s.until("all come", func() bool {
		some := s.claimOrAlone(knows, 10)
		got = append(got, some...)
		s.settle(done, some...)
		return len(got) == 3
	})
	for _, d := range got {
		if d.Alone != (d.MessageID == ids[0]) || d.Alone && d.Attempt != 3 {
			s.Errorf("message %d of kind %s came alone %v, attempt %d", d.MessageID, d.Kind, d.Alone, d.Attempt)
		}
	}
}

// setAsideClaimedAgain: a claim whose response was lost is repeated.
func setAsideClaimedAgain(s *suite) {
	s.create(quick())
	ids, _ := s.sentAside("sms", "sms", "fax")
	knows := s.handles("sms")
	var req posthaste.ClaimRequest
	var first posthaste.ClaimReply
	s.until("a claim finds some", func() bool {
		req = s.request(knows, 10)
		reply, err := s.engine.Claim(s.ctx, req)
		s.must(err)
		first = reply
		return len(first.Deliveries) > 0
	})
	again, err := s.engine.Claim(s.ctx, req)
	s.must(err)
	if !slices.Equal(deliveryIDs(first.Deliveries), deliveryIDs(again.Deliveries)) {
		s.Errorf("the same number gave %v, then %v", deliveryIDs(first.Deliveries), deliveryIDs(again.Deliveries))
	}
	open, err := s.engine.Unsettled(s.ctx, knows, req.Number)
	if slices.Sort(open); err != nil || !slices.Equal(open, deliveryIDs(first.Deliveries)) {
		s.Errorf("unsettled are %v: %v", open, err)
	}
	all := append(first.Deliveries, s.claimed(knows, 2-len(first.Deliveries))...)
	s.wantFirst(all, ids[0], ids[1])
}

func setAsidePerSubscription(s *suite) {
	s.create(quick())
	s.must(s.engine.Subscribe(posthaste.WithActor(s.ctx, "ada"), s.queue, "other", posthaste.SubscriptionOptions{}))
	other := posthaste.QueueRef{Queue: s.queue, Subscription: "other"}
	w, err := s.engine.Register(s.ctx, posthaste.WorkerInfo{Name: "tester", Lease: time.Minute, Kinds: map[posthaste.QueueRef][]string{s.ref(): {"mail"}, other: {"sms"}}})
	s.must(err)
	ids := s.sendKinds("sms")
	s.settle(aside, s.claimed(w, 1)...)
	s.none(w)
	from := func(ref posthaste.QueueRef) []posthaste.RawDelivery {
		s.Helper()
		req := s.request(w, 10)
		req.QueueRef = ref
		reply, err := s.engine.Claim(s.ctx, req)
		s.must(err)
		return reply.Deliveries
	}
	var got []posthaste.RawDelivery
	s.until("the other subscription gets it", func() bool {
		got = append(got, from(other)...)
		return len(got) > 0
	})
	s.settle(aside, got...)
	got = nil
	s.until("the other subscription gets it again", func() bool {
		got = append(got, from(other)...)
		return len(got) > 0
	})
	s.wantFirst(got, ids...)
	s.settle(done, got...)
	s.none(w)
	got = s.claimed(s.handles("sms"), 1)
	s.wantFirst(got, ids...)
	s.settle(done, got...)
}

// bothSidesProgress: while messages wait on both sides, claims take from both. Which side a
// claim begins with is drawn by lot, so any fixed number of claims may all begin with one.
func bothSidesProgress(s *suite) {
	s.create(quick())
	var sms []string
	for range 60 {
		sms = append(sms, "sms")
	}
	s.sentAside(sms...)
	knows := s.handles("mail", "sms")
	for what, most := range map[string]int{"one at a time": 1, "ten at a time": 10} {
		came := map[string]int{}
		s.until(what+", both kinds come", func() bool {
			mails := make([]string, most) // more than were claimed
			for i := range mails {
				mails[i] = "mail"
			}
			s.sendKinds(mails...)
			for _, d := range s.claim(knows, most) {
				came[d.Kind]++
				if d.Kind == "sms" { // for the next round
					s.settle(aside, d)
				} else {
					s.settle(done, d)
				}
			}
			return came["mail"] >= 5 && came["sms"] >= 5
		})
	}
}

// manyKinds: a worker gets each of its kinds, whatever others were set aside.
func manyKinds(s *suite) {
	s.create(quick())
	var all []string
	for i := range 40 {
		all = append(all, fmt.Sprintf("kind%d", i))
	}
	ids, _ := s.sentAside(append(all, "", "kind", "kind3")...)
	for _, c := range []struct {
		kinds []string
		want  []posthaste.MessageID
	}{
		{[]string{"unknown", "kind39", "kind3"}, []posthaste.MessageID{ids[3], ids[39], ids[42]}},
		{[]string{"kind", "unknown"}, []posthaste.MessageID{ids[41]}},
		{append(all, "unknown"), slices.DeleteFunc(slices.Clone(ids[:40]), func(id posthaste.MessageID) bool { return id == ids[3] || id == ids[39] })},
		{[]string{""}, []posthaste.MessageID{ids[40]}},
	} {
		w := s.handles(c.kinds...)
		got := s.claimed(w, len(c.want))
		s.wantFirst(got, c.want...)
		s.settle(done, got...)
		s.none(w)
	}
}
