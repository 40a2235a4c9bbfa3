package nats

import (
	"context"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// bells has the doorbells of this engine, and counts their sleepers.
type bells struct {
	mu    sync.Mutex
	all   map[*bell]bool
	sleep map[string]int // how many sleep on each queue
}

func (s *bells) init() { s.all, s.sleep = map[*bell]bool{}, map[string]int{} }

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

// bell implements [posthaste.Doorbell]. While a process sleeps on a queue, it has a pull open at each
// consumer from which it claimed lately.
type bell struct {
	of     *bells
	wait   func(queue string) // opens pulls that ring
	mu     sync.Mutex
	rings  map[string]chan struct{}
	closed chan struct{}
	once   sync.Once
}

// Doorbell implements [posthaste.Engine].
func (e *Engine) Doorbell(ctx context.Context) (posthaste.Doorbell, error) {
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	b := &bell{of: &e.bells, wait: e.buffers.wait, rings: map[string]chan struct{}{}, closed: make(chan struct{})}
	e.bells.mu.Lock()
	defer e.bells.mu.Unlock()
	e.bells.all[b] = true
	return b, ctx.Err()
}

func (b *bell) ringOf(queue string) chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rings[queue] == nil {
		b.rings[queue] = make(chan struct{}, 1)
	}
	return b.rings[queue]
}

// lookAgain is how long a sleep lasts at most.
const lookAgain = 30 * time.Second

// Sleep implements [posthaste.Doorbell].
func (b *bell) Sleep(ctx context.Context, queue string, look func(context.Context) (posthaste.LookReply, error)) error {
	ring := b.ringOf(queue)
	select {
	case <-ring: // of an earlier sleep
	default:
	}
	found, err := look(ctx)
	if err != nil || found.Found {
		return err
	}
	b.of.countSleeper(queue, 1)
	defer b.of.countSleeper(queue, -1)
	b.wait(queue)
	wait := lookAgain
	if found.NextDue >= 0 {
		wait = min(wait, found.NextDue)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ring:
	case <-timer.C:
	case <-b.closed:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// Wake implements [posthaste.Doorbell].
func (b *bell) Wake(queue string) {
	select {
	case b.ringOf(queue) <- struct{}{}:
	default:
	}
}

// Close implements [posthaste.Doorbell].
func (b *bell) Close() {
	b.once.Do(func() {
		b.of.mu.Lock()
		delete(b.of.all, b)
		b.of.mu.Unlock()
		close(b.closed)
	})
}
