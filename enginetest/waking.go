package enginetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var waking = []test{
	{name: "LA3_SentAroundFallingAsleep", run: aroundFallingAsleep},
	{name: "SleepEndsWhenDue", run: sleepEndsWhenDue},
	{name: "WakeAndEndOfSleep", run: wakeAndEnd},
}

func (s *suite) doorbell() posthaste.Doorbell {
	s.Helper()
	bell, err := s.engine.Doorbell(s.ctx)
	s.must(err)
	s.Cleanup(bell.Close)
	return bell
}

// aroundFallingAsleep: a message sent just before, while or after a worker falls asleep is
// found soon, because no wake-up is lost. The allowed time is far below any fallback poll and
// far above the delays of a busy machine.
func aroundFallingAsleep(s *suite) {
	s.create(posthaste.QueueOptions{})
	bell := s.doorbell()
	w := s.register(time.Minute)
	const rounds = 60
	committed := make(chan time.Time, rounds)
	proceed := make(chan struct{})
	go func() {
		for range rounds {
			select {
			case <-proceed:
			case <-s.ctx.Done():
				return
			}
			time.Sleep(rand.N(4 * time.Millisecond)) // before, while or after it falls asleep
			if _, err := s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Payload: 1}); err != nil {
				s.Error(err)
				return
			}
			committed <- time.Now()
		}
	}()
	for range rounds {
		proceed <- struct{}{}
		var got []posthaste.RawDelivery
		for len(got) == 0 {
			got = s.sleep(bell, w)
			if len(got) == 0 {
				got = s.claim(w, 10)
			}
		}
		found := time.Now()
		s.settle(done, got...)
		if late := found.Sub(<-committed); late > 10*time.Second {
			s.Fatalf("a message waited %s while its worker slept", late)
		}
	}
}

// sleep sleeps once on bell, looks by a claim, and returns the deliveries of the claim.
func (s *suite) sleep(bell posthaste.Doorbell, w posthaste.WorkerID) (got []posthaste.RawDelivery) {
	s.Helper()
	s.must(bell.Sleep(s.ctx, s.queue, func(context.Context) (posthaste.LookReply, error) {
		reply, err := s.engine.Claim(s.ctx, s.request(w, 10))
		got = reply.Deliveries
		return posthaste.LookReply{Found: len(got) > 0, NextDue: reply.NextDue}, err
	}))
	return got
}

func sleepEndsWhenDue(s *suite) {
	s.create(posthaste.QueueOptions{})
	bell := s.doorbell()
	w := s.register(time.Minute)
	const delay = 250 * time.Millisecond
	before := time.Now()
	_, err := s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Payload: 1, Delay: delay})
	s.must(err)
	var got []posthaste.RawDelivery
	for len(got) == 0 {
		got = s.sleep(bell, w)
	}
	if took := time.Since(before); took < delay || took > delay+5*time.Second {
		s.Errorf("due after %s, found after %s", delay, took)
	}
}

// wakeAndEnd: events other than a message that end a sleep.
func wakeAndEnd(s *suite) {
	s.create(posthaste.QueueOptions{})
	bell := s.doorbell()
	type end struct{ err error }
	asleep := func(ctx context.Context, found posthaste.LookReply, lookErr error) (looked chan struct{}, ended chan end) {
		looked, ended = make(chan struct{}, 100), make(chan end, 1)
		go func() {
			ended <- end{bell.Sleep(ctx, s.queue, func(context.Context) (posthaste.LookReply, error) {
				looked <- struct{}{}
				return found, lookErr
			})}
		}()
		return looked, ended
	}
	nothing := posthaste.LookReply{NextDue: -1}

	_, ended := asleep(s.ctx, posthaste.LookReply{Found: true, NextDue: -1}, nil)
	s.must((<-ended).err)

	failure := errors.New("look failed")
	_, ended = asleep(s.ctx, nothing, failure)
	if e := <-ended; !errors.Is(e.err, failure) {
		s.Errorf("a failed look ended the sleep with %v", e.err)
	}

	ctx, cancel := context.WithCancel(s.ctx)
	looked, ended := asleep(ctx, nothing, nil)
	<-looked
	cancel()
	if e := <-ended; e.err != nil && !errors.Is(e.err, context.Canceled) {
		s.Errorf("the end of the context ended the sleep with %v", e.err)
	}

	looked, ended = asleep(s.ctx, nothing, nil)
	<-looked
	s.until("waking ends the sleep", func() bool {
		bell.Wake(s.queue) // spurious or early ones are allowed
		select {
		case e := <-ended:
			s.must(e.err)
			return true
		default:
			return false
		}
	})

	looked, ended = asleep(s.ctx, nothing, nil)
	<-looked
	bell.Close()
	<-ended
}
