package enginetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var pausedKinds = []test{
	{name: "R1_PausedKindIsNotHandedOut", run: pausedKindWaits, needs: features{PauseKinds: true}},
	{name: "R1_PausedKindToReceiver", run: pausedKindToReceiver, needs: features{PauseKinds: true}},
	{name: "R1_PausedKindIsNoAttempt", run: pausedKindIsNoAttempt, needs: features{PauseKinds: true}},
	{name: "R1_PausedKindIsCounted", run: pausedKindIsCounted, needs: features{PauseKinds: true}},
	{name: "R1_PausedKindIsRecorded", run: pausedKindIsRecorded, needs: features{PauseKinds: true}},
	{name: "R1_PausedKindByManyClaimers", run: pausedKindByMany, needs: features{PauseKinds: true}},
	{name: "R1_PausedKindScheduled", run: pausedKindScheduled, needs: features{PauseKinds: true}},
	{name: "R1_PausedKindRetries", run: pausedKindRetries, needs: features{PauseKinds: true}},
	{name: "R1_PausedKindRunsAlone", run: pausedKindRunsAlone, needs: features{PauseKinds: true}},
	{name: "R1_PausedKindWakes", run: pausedKindWakes, needs: features{PauseKinds: true}},
	{name: "R1_PausedKindAtMostOnce", run: pausedKindAtMostOnce, needs: features{AtMostOnce: true, PauseKinds: true}},
	{name: "R1_PausedKindExpires", run: pausedKindExpires, needs: features{Attempts: true, PauseKinds: true}},
	{name: "R1_PausedKindCancelled", run: pausedKindCancelled, needs: features{Withdrawal: true, PauseKinds: true}},
	{name: "R1_PausedKindTakesNoToken", run: pausedKindTakesNoToken, needs: features{Limits: true, PauseKinds: true}},
	{name: "R1_PausedKindOfEachSubscription", run: pausedKindOfEach, needs: features{Subscriptions: true, PauseKinds: true}},
	{name: "R1_PausedKindOfKeys", run: pausedKindOfKeys, needs: features{Ordered: true, PauseKinds: true}},
	{name: "R8_RunOfPausedKind", run: runOfPausedKind, needs: features{PauseKinds: true}},
}

func (s *suite) pauseKind(kind string) {
	s.Helper()
	s.must(s.engine.Pause(posthaste.WithActor(s.ctx, "ada"), posthaste.OfKind{Queue: s.queue, Kind: kind}, posthaste.PauseOptions{}))
}

func (s *suite) resumeKind(kind string) {
	s.Helper()
	s.must(s.engine.Resume(posthaste.WithActor(s.ctx, "ada"), posthaste.OfKind{Queue: s.queue, Kind: kind}))
}

// pausedKindWaits: no worker gets a message of a paused kind, whichever kinds it handles, until the
// kind is resumed. Others come.
func pausedKindWaits(s *suite) {
	s.create(quick())
	before := s.sendKinds("sms", "mail")
	all, knows, other := s.register(time.Minute), s.handles("sms", "mail"), s.handles("mail")
	s.pauseKind("sms")
	later := s.sendKinds("sms", "", "sms")
	got := s.claimed(all, 2)
	s.wantFirst(got, before[1], later[1])
	s.settle(done, got...)
	for range 4 {
		s.none(all)
		s.none(knows)
		s.none(other)
	}
	s.wantState(before[0], posthaste.StateReady)
	s.wantState(later[2], posthaste.StateReady)
	for what, w := range map[string]posthaste.WorkerID{"of all kinds": all, "of the kind": knows} {
		if l := s.look(w); l.Found || l.NextDue >= 0 {
			s.Errorf("a worker %s is told %+v", what, l)
		}
	}
	s.resumeKind("sms")
	s.none(other)
	if l := s.look(knows); !l.Found {
		s.Errorf("after the pause a worker is told %+v", l)
	}
	one := s.claimed(knows, 1)
	s.unburnt(one)
	got = append(s.claimed(all, 2), one...)
	s.wantFirst(got, before[0], later[0], later[2])
	s.settle(done, got...)
	s.none(all)
}

func pausedKindToReceiver(s *suite) {
	s.create(quick())
	s.pauseKind("sms")
	ids := s.sendKinds("sms", "fax", "sms")
	var got []posthaste.RawDelivery
	s.until("the other is received", func() bool {
		got = append(got, s.receive(10, time.Minute)...)
		return len(got) > 0
	})
	s.wantFirst(got, ids[1])
	for range 3 {
		if more := s.receive(10, time.Minute); len(more) > 0 {
			s.Errorf("%+v were received", more)
		}
	}
	s.settle(done, got...)
	s.resumeKind("sms")
	got = nil
	s.until("both are received", func() bool {
		got = append(got, s.receive(10, time.Minute)...)
		return len(got) == 2
	})
	s.wantFirst(got, ids[0], ids[2])
}

func pausedKindIsNoAttempt(s *suite) {
	s.create(posthaste.QueueOptions{MaxAttempts: 1})
	ids := s.sendKinds("sms")
	all := s.register(time.Minute)
	for range 5 {
		s.pauseKind("sms")
		s.none(all)
		s.resumeKind("sms")
		got := s.claimed(all, 1)
		s.unburnt(got)
		s.settle(aside, got...)
	}
	got := s.claimed(all, 1)
	s.wantFirst(got, ids...)
	if r := s.settle(failed, got...)[0]; r.Outcome != posthaste.OutcomeDead {
		s.Errorf("the only attempt became %s", r.Outcome)
	}
}

func pausedKindIsCounted(s *suite) {
	s.create(quick())
	s.pauseKind("sms")
	s.pauseKind("fax")
	s.sendKinds("sms", "fax", "sms", "mail")
	all := s.register(time.Minute)
	held := s.claimed(all, 1)
	s.none(all)
	info := s.wantSetAside(posthaste.SetAside{Kind: "fax", Waiting: 1, Paused: true}, posthaste.SetAside{Kind: "sms", Waiting: 2, Paused: true})
	s.until("the counters are right", func() bool {
		info = s.counted()
		return info.Depth == 3 && info.InFlight == 1 && info.Expired == 0
	})
	if info.OldestAge != 0 {
		s.Errorf("the oldest message that may be handed out is %s old", info.OldestAge)
	}
	s.settle(done, held...)
	infos, err := s.engine.Queues(s.ctx, s.queue)
	s.must(err)
	if got := infos[0].PausedKinds; !slices.Equal(got, []string{"fax", "sms"}) {
		s.Errorf("the paused kinds are %q", got)
	}
	s.resumeKind("sms")
	s.wantSetAside(posthaste.SetAside{Kind: "fax", Waiting: 1, Paused: true}, posthaste.SetAside{Kind: "sms", Waiting: 2})
	s.settle(done, s.claimed(all, 2)...)
	s.until("the messages are counted as done", func() bool {
		info = s.counted()
		return info.Depth == 1 && info.InFlight == 0 && info.Done == 3
	})
	findings, err := s.engine.Doctor(s.ctx)
	s.must(err)
	for _, f := range findings {
		if f.Queue == s.queue {
			s.Errorf("the doctor found %+v", f)
		}
	}
}

func pausedKindIsRecorded(s *suite) {
	s.create(quick())
	for range 2 {
		s.pauseKind("sms")
	}
	for range 2 {
		s.resumeKind("sms")
	}
	s.resumeKind("never paused")
	actions, err := s.engine.Actions(s.ctx, posthaste.ActionFilter{Queue: s.queue})
	s.must(err)
	if len(actions) != 3 || actions[0].Action != "resume_kind" || actions[1].Action != "pause_kind" || actions[1].By != "ada" || !strings.Contains(string(actions[1].Details), `"sms"`) {
		s.Errorf("the pause is recorded as %+v", actions)
	}
	for what, code := range map[posthaste.OfKind]posthaste.Code{
		{Queue: "nowhere", Kind: "sms"}: posthaste.CodeNotFound, {Queue: s.queue}: posthaste.CodeInvalid, {Queue: s.queue, Kind: strings.Repeat("k", 256)}: posthaste.CodeTooLarge} {
		s.wantCode("pausing "+what.Kind, s.engine.Pause(s.ctx, what, posthaste.PauseOptions{}), code)
		s.wantCode("resuming "+what.Kind, s.engine.Resume(s.ctx, what), code)
	}
	for i := range posthaste.MaxKinds {
		s.pauseKind(fmt.Sprint("kind ", i))
	}
	s.wantCode("pausing too many kinds", s.engine.Pause(s.ctx, posthaste.OfKind{Queue: s.queue, Kind: "sms"}, posthaste.PauseOptions{}), posthaste.CodeUnsupported)
}

// pausedKindByMany: of concurrent claimers beside pauses, each message goes to one, and none of
// the kind while it is paused.
func pausedKindByMany(s *suite) {
	s.create(quick())
	kinds := make([]string, 60)
	for i := range kinds {
		kinds[i] = []string{"sms", "fax", "mail"}[i%3]
	}
	s.pauseKind("sms")
	ids := s.sendKinds(kinds...)
	all := func() posthaste.WorkerID { return s.register(time.Minute) }
	came := map[posthaste.MessageID][]string{}
	s.claimConcurrently(all, came, 40)
	for id, kinds := range came {
		if slices.Contains(kinds, "sms") {
			s.Errorf("message %d of the paused kind was handed out", id)
		}
	}
	s.resumeKind("sms")
	s.claimConcurrently(all, came, len(ids))
	s.wantOnce(came, ids)
}

// pausedKindScheduled: a scheduled message of a paused kind is set aside once it is due.
func pausedKindScheduled(s *suite) {
	s.create(quick())
	s.pauseKind("sms")
	ids := s.sendMessages(posthaste.Message{Kind: "sms", Delay: 20 * time.Millisecond}, posthaste.Message{Kind: "mail", Delay: 20 * time.Millisecond})
	all := s.register(time.Minute)
	s.wantFirst(s.claimed(all, 1), ids[1])
	s.until("the other is set aside", func() bool {
		s.none(all)
		infos, err := s.engine.Queues(s.ctx, s.queue)
		s.must(err)
		return len(infos[0].Subscriptions[0].SetAside) == 1
	})
	s.wantState(ids[0], posthaste.StateReady)
	s.resumeKind("sms")
	s.wantFirst(s.claimed(all, 1), ids[0])
}

// pausedKindRetries: messages handed out before the pause can be settled, and their retries wait.
func pausedKindRetries(s *suite) {
	s.create(quick())
	s.sendKinds("sms", "sms", "sms")
	all := s.register(time.Minute)
	held := s.claimed(all, 3)
	s.pauseKind("sms")
	s.settle(done, held[0])
	s.settle(failed, held[1])
	s.settle(released, held[2])
	s.until("the retry is set aside", func() bool {
		s.none(all)
		infos, err := s.engine.Queues(s.ctx, s.queue)
		s.must(err)
		asides := infos[0].Subscriptions[0].SetAside
		return len(asides) == 1 && asides[0].Waiting == 2
	})
	s.resumeKind("sms")
	for _, d := range s.claimed(all, 2) {
		if want := map[posthaste.MessageID]int{held[1].MessageID: 2, held[2].MessageID: 1}[d.MessageID]; d.Attempt != want {
			s.Errorf("message %d came as attempt %d, want %d", d.MessageID, d.Attempt, want)
		}
		s.settle(done, d)
	}
}

// pausedKindRunsAlone: a message that must run alone does not come while its kind is paused, and
// then alone.
func pausedKindRunsAlone(s *suite) {
	s.create(quick())
	ids := s.sendKinds("sms")
	for range 2 {
		s.until("it is received", func() bool { return len(s.receive(1, time.Millisecond)) == 1 })
		s.rescue(1)
	}
	s.pauseKind("sms")
	all := s.register(time.Minute)
	others := s.sendKinds("mail")
	var got []posthaste.RawDelivery
	s.until("the other comes", func() bool {
		got = append(got, s.claimOrAlone(all, 10)...)
		return len(got) > 0
	})
	s.settle(done, got...)
	s.wantState(others[0], posthaste.StateDone)
	for range 3 {
		if more := s.claimOrAlone(all, 10); len(more) > 0 {
			s.Errorf("%+v came", more)
		}
	}
	s.resumeKind("sms")
	s.until("it comes", func() bool {
		got = s.claimOrAlone(all, 10)
		return len(got) > 0
	})
	if got[0].MessageID != ids[0] || !got[0].Alone || got[0].Attempt != 3 {
		s.Errorf("message %d came, alone: %v, attempt %d", got[0].MessageID, got[0].Alone, got[0].Attempt)
	}
}

// pausedKindWakes: resuming wakes a worker that sleeps.
func pausedKindWakes(s *suite) {
	s.create(quick())
	s.pauseKind("sms")
	ids := s.sendKinds("sms")
	all := s.register(time.Minute)
	s.none(all)
	bell, err := s.engine.Doorbell(s.ctx)
	s.must(err)
	defer bell.Close()
	var got []posthaste.RawDelivery
	slept := false
	s.until("the sleeper gets it", func() bool {
		s.must(bell.Sleep(s.ctx, s.queue, func(context.Context) (posthaste.LookReply, error) {
			reply, err := s.engine.Claim(s.ctx, s.request(all, 1))
			if got = reply.Deliveries; len(got) == 0 && err == nil && !slept {
				slept = true
				s.resumeKind("sms")
			}
			return posthaste.LookReply{Found: len(got) > 0, NextDue: -1}, err
		}))
		return len(got) > 0
	})
	s.wantFirst(got, ids...)
}

func pausedKindAtMostOnce(s *suite) {
	s.create(posthaste.QueueOptions{Mode: posthaste.AtMostOnce})
	s.pauseKind("sms")
	ids := s.sendKinds("sms", "mail", "sms")
	all := s.register(time.Minute)
	s.wantFirst(s.claimed(all, 1), ids[1])
	for range 3 {
		s.none(all)
	}
	s.wantState(ids[0], posthaste.StateReady)
	s.resumeKind("sms")
	s.wantFirst(s.claimed(all, 2), ids[0], ids[2])
	s.none(all)
	s.wantState(ids[2], posthaste.StateHandedOut)
	s.until("all are counted", func() bool {
		info := s.counted()
		return info.Depth == 0 && info.InFlight == 0
	})
}

// pausedKindExpires: a message gets older while its kind is paused, and ends when it is resumed.
func pausedKindExpires(s *suite) {
	o := quick()
	o.MaxAge = 300 * time.Millisecond
	s.create(o)
	s.pauseKind("sms")
	ids := s.sendKinds("sms")
	all := s.register(time.Minute)
	s.none(all)
	sent := time.Now()
	s.until("it is too old", func() bool {
		s.none(all)
		return time.Since(sent) > o.MaxAge
	})
	s.wantState(ids[0], posthaste.StateReady)
	s.resumeKind("sms")
	s.until("it expires", func() bool {
		s.none(all)
		m, err := s.engine.Message(s.ctx, ids[0])
		s.must(err)
		return m.Subscriptions[0].State == posthaste.StateExpired
	})
}

func pausedKindCancelled(s *suite) {
	s.create(quick())
	s.pauseKind("sms")
	ids := s.sendKinds("sms", "sms")
	all := s.register(time.Minute)
	s.none(all)
	results, err := s.engine.Cancel(s.ctx, ids[0])
	s.must(err)
	if len(results) != 1 || !results[0].InTime {
		s.Errorf("cancelling gave %+v", results)
	}
	s.resumeKind("sms")
	s.wantFirst(s.claimed(all, 1), ids[1])
	s.none(all)
}

// pausedKindTakesNoToken: in a queue with limits, a paused message takes no token and no place.
func pausedKindTakesNoToken(s *suite) {
	s.create(posthaste.QueueOptions{Limits: posthaste.QueueLimits{Concurrency: 2, RateLimit: posthaste.Rate{Limit: 2, Per: time.Hour, Burst: 2}}})
	s.pauseKind("sms")
	ids := s.sendKinds("sms", "sms", "sms", "mail")
	all := s.register(time.Minute)
	got := s.claimed(all, 1)
	s.wantFirst(got, ids[3])
	s.resumeKind("sms")
	s.settle(done, got...)
	s.settle(done, s.claimed(all, 1)...) // the second token
	s.none(all)
}

func pausedKindOfEach(s *suite) {
	s.create(quick())
	s.must(s.engine.Subscribe(s.ctx, s.queue, "second", posthaste.SubscriptionOptions{Filter: posthaste.Filter{Kinds: []string{"sms", "fax"}}}))
	s.pauseKind("sms")
	ids := s.sendKinds("sms", "fax")
	all := s.register(time.Minute)
	claim := func(subscription string, n int64) []posthaste.RawDelivery {
		reply, err := s.engine.Claim(s.ctx, posthaste.ClaimRequest{Worker: all, Number: n, QueueRef: posthaste.QueueRef{Queue: s.queue, Subscription: subscription}, Max: 10})
		s.must(err)
		return reply.Deliveries
	}
	for i, subscription := range []string{"default", "second"} {
		s.wantFirst(claim(subscription, int64(10*i+1)), ids[1])
		if more := claim(subscription, int64(10*i+2)); len(more) > 0 {
			s.Errorf("%s was handed %+v", subscription, more)
		}
	}
	s.resumeKind("sms")
	for i, subscription := range []string{"default", "second"} {
		s.wantFirst(claim(subscription, int64(10*i+103)), ids[0])
	}
}

// pausedKindOfKeys: a queue that looks at keys refuses it, and says what to do.
func pausedKindOfKeys(s *suite) {
	o := quick()
	o.Ordered = true
	s.create(o)
	err := s.engine.Pause(s.ctx, posthaste.OfKind{Queue: s.queue, Kind: "sms"}, posthaste.PauseOptions{})
	s.wantCode("pausing a kind of an ordered queue", err, posthaste.CodeUnsupported)
	s.must(s.engine.Resume(s.ctx, posthaste.OfKind{Queue: s.queue, Kind: "sms"}))
}

func runOfPausedKind(s *suite) {
	s.create(quick())
	s.pauseKind("sms")
	ids := s.sendMessages(posthaste.Message{Kind: "sms", Delay: time.Hour}, posthaste.Message{Kind: "mail", Delay: time.Hour})
	for i, want := range [][]string{{"kind_paused"}, nil} {
		results, err := s.engine.RunMessage(s.ctx, ids[i])
		s.must(err)
		if len(results) != 1 || !results[0].Due || !slices.Equal(results[0].HeldBy, want) {
			s.Errorf("running message %d gave %+v, want it held by %q", i, results, want)
		}
	}
}
