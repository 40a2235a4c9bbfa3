package nats

import (
	"context"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/localbell"
)

// bells has the doorbells of this engine, and counts their sleepers.
type bells struct {
	mu    sync.Mutex
	all   map[*localbell.Bell]bool
	sleep map[string]int // how many sleep on each queue
}

func (s *bells) init() { s.all, s.sleep = map[*localbell.Bell]bool{}, map[string]int{} }

// ring wakes all sleepers of a queue.
func (s *bells) ring(queue string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for b := range s.all {
		b.Wake(queue)
	}
}

func (s *bells) asleep(queue string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sleep[queue] > 0
}

func (s *bells) countSleeper(queue string, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sleep[queue] += by; s.sleep[queue] == 0 {
		delete(s.sleep, queue)
	}
}

// Doorbell implements [posthaste.Engine].
func (e *Engine) Doorbell(ctx context.Context) (posthaste.Doorbell, error) {
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	b := localbell.New(e.asleep, e.bells.remove)
	e.bells.mu.Lock()
	defer e.bells.mu.Unlock()
	e.bells.all[b] = true
	return b, ctx.Err()
}

func (s *bells) remove(b *localbell.Bell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, b)
}

// lookAgain is how long a sleep lasts at most.
const lookAgain = 30 * time.Second

// asleep prepares a sleep. While a process sleeps on a queue, it has a pull open at each consumer from
// which it claimed lately.
func (e *Engine) asleep(queue string, nextDue time.Duration) (due <-chan time.Time, wake func()) {
	e.bells.countSleeper(queue, 1)
	e.buffers.wait(queue)
	wait := lookAgain
	if nextDue >= 0 {
		wait = min(wait, nextDue)
	}
	timer := time.NewTimer(wait)
	return timer.C, func() {
		timer.Stop()
		e.bells.countSleeper(queue, -1)
	}
}
