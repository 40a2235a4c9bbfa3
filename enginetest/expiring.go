package enginetest

import (
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var expiring = []test{
	{name: "R11_ExpiredIsNotHandedOut", run: expiredIsNotHandedOut},
	{name: "R11_ExpiredIsNotReceived", run: expiredIsNotReceived},
	{name: "R11_ExpiredRetry", run: expiredRetry, needs: features{Attempts: true}},
	{name: "R11_AgeFromDueTime", run: ageFromDueTime},
	{name: "R11_AgeFromReplay", run: ageFromReplay},
	{name: "R11_AgeFromReschedule", run: ageFromReschedule, needs: features{Withdrawal: true}},
	{name: "R11_ExpiredKeepsNoPlace", run: expiredKeepsNoPlace, needs: features{Limits: true}},
	{name: "R11_ExpiredBlocksNoKey", run: expiredBlocksNoKey, needs: features{Ordered: true}},
	{name: "R11_ExpiredOfFairKeys", run: expiredOfFairKeys, needs: features{Limits: true}},
	{name: "R11_ExpiredAtMostOnce", run: expiredAtMostOnce, needs: features{AtMostOnce: true, Exact: true}},
}

// maxAge is short enough to wait for, and long enough for a claim right after a send.
const maxAge = 300 * time.Millisecond

// age waits until all that was sent before is too old.
func (s *suite) age() {
	s.Helper()
	begun := time.Now()
	s.until("the messages are too old", func() bool { return time.Since(begun) > maxAge+10*time.Millisecond })
}

// fresh sends messages until take returns one, which must be one of them: each may expire if this
// process was slow. It fails if take returns another one.
func (s *suite) fresh(send func() []posthaste.MessageID, take func() []posthaste.RawDelivery) posthaste.RawDelivery {
	s.Helper()
	var sent []posthaste.MessageID
	var got []posthaste.RawDelivery
	s.until("a message that is not too old is handed out", func() bool {
		sent = append(sent, send()...)
		for begun := time.Now(); len(got) == 0 && time.Since(begun) < 2*maxAge; {
			got = take()
		}
		return len(got) > 0
	})
	for _, d := range got {
		if !slices.Contains(sent, d.MessageID) {
			s.Fatalf("message %d was handed out, attempt %d, which was too old", d.MessageID, d.Attempt)
		}
	}
	if len(got) > 1 {
		s.settle(done, got[1:]...)
	}
	return got[0]
}

// sendOne and claims are arguments of fresh.
func (s *suite) sendOne() []posthaste.MessageID { return s.send(1) }

func (s *suite) claims(w posthaste.WorkerID, limit int) func() []posthaste.RawDelivery {
	return func() []posthaste.RawDelivery { return s.claim(w, limit) }
}

// sendLater sends a message that is due when one sent now would be too old.
func (s *suite) sendLater(key string) []posthaste.MessageID {
	s.Helper()
	ids, err := posthaste.IDs(s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Key: key, Payload: 1, Delay: maxAge + 20*time.Millisecond}))
	s.must(err)
	return ids
}

// wantExpired checks the state of messages that expired.
func (s *suite) wantExpired(ids ...posthaste.MessageID) {
	s.Helper()
	for _, id := range ids {
		state := s.state(id)
		if state.State != posthaste.StateExpired {
			s.Errorf("message %d is %s, want expired", id, state.State)
		}
		if n := len(state.Attempts); n > 0 && state.Attempts[n-1].Outcome != posthaste.OutcomeExpired {
			s.Errorf("message %d expired, and its last attempt ended as %s", id, state.Attempts[n-1].Outcome)
		}
	}
}

func expiredIsNotHandedOut(s *suite) {
	s.create(posthaste.QueueOptions{MaxAge: maxAge})
	w := s.register(time.Minute)
	old := s.send(100) // more messages than the special paths for small numbers handle
	s.age()
	first := s.fresh(s.sendOne, func() []posthaste.RawDelivery {
		// A claim that only expired messages must not let the worker sleep beside the others.
		reply, err := s.engine.Claim(s.ctx, s.request(w, 7))
		s.must(err)
		if len(reply.Deliveries) == 0 && s.state(old[99]).State == posthaste.StateReady && reply.NextDue != 0 {
			s.Fatalf("messages wait, but the next claim is to come after %s", reply.NextDue)
		}
		return reply.Deliveries
	})
	if first.Attempt != 1 || len(first.Story) != 0 {
		s.Errorf("it comes with attempt %d and %v", first.Attempt, first.Story)
	}
	s.settle(done, first)
	s.wantExpired(old...)
	var got posthaste.SubscriptionInfo
	s.until("they are counted", func() bool {
		got = s.counted()
		totals := got.Expired >= 100 && got.Done >= 1 || !s.engine.Capabilities().Totals
		return totals && got.InFlight == 0
	})
	if got.Dead != 0 || s.engine.Capabilities().Totals && got.Sent != got.Done+got.Expired+got.Depth || got.Withdrawn != 0 {
		s.Errorf("after 100 expired it counts %+v", got)
	}
	if s.engine.Capabilities().Search {
		found, err := s.engine.Messages(s.ctx, posthaste.MessageFilter{Queue: s.queue, State: posthaste.StateExpired, Limit: 1000})
		s.must(err)
		if len(found.Items) != int(got.Expired) {
			s.Errorf("%d expired messages are listed, want %d", len(found.Items), got.Expired)
		}
	}
	if lost, err := s.engine.Maintain(s.ctx, posthaste.UpkeepRescue); err != nil || lost.Rescued != 0 {
		s.Errorf("%d were rescued, %v", lost.Rescued, err)
	}
}

func expiredIsNotReceived(s *suite) {
	s.create(posthaste.QueueOptions{MaxAge: maxAge})
	old := s.send(5)
	s.age()
	first := s.fresh(s.sendOne, func() []posthaste.RawDelivery { return s.receive(3, time.Minute) })
	s.settle(done, first)
	s.wantExpired(old...)
}

// expiredRetry: a message that gets too old while it waits for its next attempt is not tried
// again, and is no dead letter.
func expiredRetry(s *suite) {
	s.create(posthaste.QueueOptions{MaxAge: maxAge})
	w := s.register(time.Minute)
	first := s.fresh(s.sendOne, s.claims(w, 1))
	later := failed
	later.RetryAfter = maxAge
	s.settle(later, first)
	s.until("it expires", func() bool {
		s.none(w)
		return s.state(first.MessageID).State == posthaste.StateExpired
	})
	s.wantExpired(first.MessageID)
	attempts := s.state(first.MessageID).Attempts
	if len(attempts) != 2 || attempts[0].Outcome != posthaste.OutcomeRetried || attempts[0].Error != failed.Error {
		s.Errorf("its attempts are %+v", attempts)
	}
	dead, err := s.engine.DeadLetters(s.ctx, posthaste.DeadLetterFilter{Queue: s.queue, Limit: 10})
	s.must(err)
	if len(dead.Items) != 0 {
		s.Errorf("it is a dead letter: %+v", dead.Items)
	}
}

// ageFromDueTime: the age of a scheduled message counts from its due time, and not from when it
// was sent; also for its further attempts.
func ageFromDueTime(s *suite) {
	o := quick()
	o.MaxAge = maxAge
	s.create(o)
	w := s.register(time.Minute)
	s.until("a scheduled message is handed out a second time", func() bool {
		first := s.fresh(func() []posthaste.MessageID { return s.sendLater("") }, s.claims(w, 10))
		s.settle(failed, first)
		for begun := time.Now(); time.Since(begun) < 2*maxAge; {
			if again := s.claim(w, 10); len(again) > 0 {
				s.settle(done, again...)
				return slices.Contains(messageIDs(again), first.MessageID)
			}
		}
		return false
	})
}

// ageFromReplay: a dead letter that is replayed is handed out, however old the message is.
func ageFromReplay(s *suite) {
	s.create(posthaste.QueueOptions{MaxAge: maxAge})
	w := s.register(time.Minute)
	var dead []posthaste.MessageID
	for len(dead) < 5 {
		d := s.fresh(s.sendOne, s.claims(w, 1))
		s.settle(hopeless, d)
		dead = append(dead, d.MessageID)
	}
	s.age()
	again := s.fresh(func() []posthaste.MessageID {
		if len(dead) == 0 {
			s.Fatal("no replayed message was handed out")
		}
		_, err := s.engine.Replay(posthaste.WithActor(s.ctx, "ada"), posthaste.DeadLetterFilter{IDs: dead[:1]})
		s.must(err)
		next := dead[:1]
		dead = dead[1:]
		return next
	}, s.claims(w, 10))
	if again.Attempt != 2 {
		s.Errorf("the replayed message comes with attempt %d", again.Attempt)
	}
}

// ageFromReschedule: a message that was moved to another time counts its age from that time.
func ageFromReschedule(s *suite) {
	s.create(posthaste.QueueOptions{MaxAge: maxAge})
	w := s.register(time.Minute)
	s.fresh(func() []posthaste.MessageID {
		ids, err := posthaste.IDs(s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Payload: 1, Delay: time.Hour}))
		s.must(err)
		s.age()
		_, err = s.engine.Reschedule(posthaste.WithActor(s.ctx, "ada"), ids[0], time.Now())
		s.must(err)
		return ids
	}, s.claims(w, 10))
}

// expiredKeepsNoPlace: what expires takes no token of a rate limit and no place of a concurrency.
func expiredKeepsNoPlace(s *suite) {
	s.create(posthaste.QueueOptions{MaxAge: maxAge, Limits: posthaste.QueueLimits{Concurrency: 2,
		RateLimit: posthaste.Rate{Limit: 20, Per: time.Hour, Burst: 20}}})
	w := s.register(time.Minute)
	old := s.send(200)
	s.age()
	d := s.fresh(s.sendOne, s.claims(w, 10))
	s.wantExpired(old...)
	s.settle(done, d)
}

// expiredBlocksNoKey: expired messages of an ordered queue do not hold up the later ones of
// their key.
func expiredBlocksNoKey(s *suite) {
	s.ordered(func(o *posthaste.QueueOptions) { o.MaxAge = maxAge })
	send := func() []posthaste.MessageID { return s.sendKeys("a") }
	take := func() []posthaste.RawDelivery { return s.receive(10, time.Minute) }
	held := s.fresh(send, take)
	old := s.sendKeys("a", "a")
	if got := take(); len(got) > 0 {
		s.Fatalf("beside message %d of its key %d was handed out", held.MessageID, got[0].MessageID)
	}
	s.age()
	s.settle(done, held)
	s.settle(done, s.fresh(send, take))
	s.wantExpired(old...)
}

// expiredOfFairKeys: the same with messages that wait behind others of their key in a queue
// whose keys take turns, scheduled ones among them.
func expiredOfFairKeys(s *suite) {
	o := quick()
	o.MaxAge, o.Fair, o.Limits.KeyConcurrency = maxAge, true, 1
	s.create(o)
	w := s.register(time.Minute)
	take := s.claims(w, 10)
	held := s.fresh(func() []posthaste.MessageID { return s.sendKeys("a") }, take)
	old := s.sendKeys("a", "a", "a")
	s.claim(w, 10)
	s.age()
	s.settle(done, held)
	next := s.fresh(func() []posthaste.MessageID { return s.sendLater("a") }, take)
	s.settle(done, next)
	s.wantExpired(old...)
}

func expiredAtMostOnce(s *suite) {
	s.create(posthaste.QueueOptions{MaxAge: maxAge, Mode: posthaste.AtMostOnce})
	w := s.register(time.Minute)
	old := s.send(5)
	s.age()
	d := s.fresh(s.sendOne, s.claims(w, 1))
	s.wantExpired(old...)
	s.wantState(d.MessageID, posthaste.StateHandedOut)
}
