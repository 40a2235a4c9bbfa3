package enginetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// quickOthers are those of others that would hold up many messages.
var quickOthers = map[string]posthaste.QueueOptions{
	"max_attempts": {MaxAttempts: 900}, "backoff.base": {BackoffBase: 2 * time.Millisecond}, "backoff.max": {BackoffMax: 3 * time.Millisecond},
	"rate_limit":     {Limits: posthaste.QueueLimits{RateLimit: posthaste.Rate{Limit: 100_000}}},
	"key_rate_limit": {Limits: posthaste.QueueLimits{KeyRateLimit: posthaste.Rate{Limit: 100_000}}},
}

// updatedUnderLoad: while messages are sent, handed out, fail and are tried again, each option
// changes to and fro. Each message is done once, and none is handed out before it is due.
func updatedUnderLoad(s *suite) {
	eachChangeable(s, func(option *posthaste.QueueOption, other posthaste.QueueOptions) {
		o := quick()
		o.MaxAttempts = 1000
		updateQueue(s, o)
		if quick, ok := quickOthers[option.Name]; ok {
			other = quick
		}
		l := &load{suite: s, from: map[posthaste.MessageID]time.Time{}, done: map[posthaste.MessageID]int{}}
		var all sync.WaitGroup
		for range 2 {
			w := s.register(time.Minute)
			all.Go(func() { l.work(w) })
		}
		all.Go(func() {
			for n := range 20 {
				l.send(n)
			}
			l.sent.Store(true)
		})
		all.Go(func() {
			for n := 0; !l.sent.Load() || n%2 == 1; n++ {
				update := posthaste.QueueUpdate{Options: other}
				if n%2 == 1 && option.Name == "lanes" {
					return
				}
				if n%2 == 1 {
					update = posthaste.QueueUpdate{Reset: []string{option.Name}}
					if option.Name == "max_attempts" || option.Name == "backoff.base" || option.Name == "backoff.max" {
						update = posthaste.QueueUpdate{Options: o}
					}
				}
				if err := s.engine.UpdateQueue(s.ctx, s.queue, update); err != nil {
					s.Errorf("changing %s: %v", option.Name, err)
					return
				}
				l.pause()
			}
		})
		all.Wait()
		if s.Failed() {
			return
		}
		for id := range l.from {
			if n := l.done[id]; n != 1 {
				s.Errorf("while %s changed message %d was done %d times", option.Name, id, n)
			}
		}
		w := s.register(time.Minute)
		s.none(w)
		wantDeadLetters(s, 0)
	})
}

func wantDeadLetters(s *suite, n int) {
	s.Helper()
	dead, err := s.engine.DeadLetters(s.ctx, posthaste.DeadLetterFilter{Queue: s.queue})
	s.must(err)
	if len(dead.Items) != n {
		s.Errorf("%d dead letters, want %d", len(dead.Items), n)
	}
}

// load is the traffic of a queue whose options change.
type load struct {
	*suite
	sent atomic.Bool
	mu   sync.Mutex
	from map[posthaste.MessageID]time.Time // when it may be handed out
	done map[posthaste.MessageID]int
	left int
}

// send sends a few messages, one of which is due later if the queue allows that.
func (l *load) send(n int) {
	messages := make([]posthaste.Message, 4)
	for i := range messages {
		messages[i] = posthaste.Message{Queue: l.queue, Key: fmt.Sprint("k", i%2), Payload: n}
	}
	const later = 5 * time.Millisecond
	delayed := l.queue != "suite-7-on_dead" // ordered queues have no due times
	if delayed {
		messages[3].Delay = later
	}
	begun := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	ids, err := posthaste.IDs(l.engine.Send(l.ctx, messages...))
	if err != nil {
		l.Errorf("sending: %v", err)
		return
	}
	for i, id := range ids {
		l.from[id] = begun
		if delayed && i == 3 {
			l.from[id] = begun.Add(later)
		}
	}
	l.left += len(ids)
}

// work handles messages until all are done. Each fails at its first attempt.
func (l *load) work(w posthaste.WorkerID) {
	for number := int64(1); ; number++ {
		reply, err := l.engine.Claim(l.ctx, posthaste.ClaimRequest{Worker: w, Number: number, QueueRef: l.ref(), Max: 7})
		if err != nil {
			l.Errorf("claiming: %v", err)
			return
		}
		now := time.Now()
		var settlements []posthaste.Settlement
		for _, d := range reply.Deliveries {
			one := done
			if d.Attempt == 1 {
				one = failed
			}
			one.Delivery = d.ID
			settlements = append(settlements, one)
		}
		results, err := l.engine.Settle(l.ctx, settlements)
		if err != nil {
			l.Errorf("settling: %v", err)
			return
		}
		l.mu.Lock()
		for i, r := range results {
			id := reply.Deliveries[i].MessageID
			if !r.Settled {
				l.Errorf("delivery %d of message %d was not settled", r.Delivery, id)
			}
			if early := l.from[id].Sub(now); early > 0 && l.engine.Capabilities().Exact { // others estimate the clock of their servers
				l.Errorf("message %d came %s early", id, early)
			}
			if r.Outcome == posthaste.OutcomeDone {
				l.done[id]++
				l.left--
			}
		}
		over := l.sent.Load() && l.left == 0
		l.mu.Unlock()
		if over || l.ctx.Err() != nil {
			return
		}
		if len(reply.Deliveries) == 0 {
			l.pause()
		}
	}
}

func (l *load) pause() {
	select {
	case <-l.ctx.Done():
	case <-time.After(time.Millisecond):
	}
}
