package pacedbell

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// bell implements [posthaste.Doorbell].
type bell struct {
	posthaste.Doorbell
	pacer  *Pacer
	closed chan struct{}
	once   sync.Once

	mu     sync.Mutex
	sleeps map[string]*sleep
	// limited has the queues whose last look reported a limit. Sends to them do not ring the
	// doorbell, so polling has no benefit.
	limited map[string]bool
}

// sleep is one Sleep. bell.mu guards woken.
type sleep struct {
	queue string
	woken bool
	wake  chan struct{} // has room for one
}

// keyHolder is a doorbell that may hold keys for a moment after a Sleep. During that time
// sends ring it.
type keyHolder interface {
	// LetGo releases the keys of a queue immediately if no Sleep uses them.
	LetGo(queue string)
}

// Pace returns a doorbell that sleeps on inner, or polls while messages are frequent. It
// closes inner.
func (p *Pacer) Pace(inner posthaste.Doorbell) posthaste.Doorbell {
	return &bell{Doorbell: inner, pacer: p, closed: make(chan struct{}), sleeps: map[string]*sleep{}, limited: map[string]bool{}}
}

// Sleep implements [posthaste.Doorbell].
func (b *bell) Sleep(ctx context.Context, queue string, look func(context.Context) (posthaste.LookReply, error)) error {
	s := &sleep{queue: queue, wake: make(chan struct{}, 1)}
	b.mu.Lock()
	if b.sleeps[queue] != nil {
		b.mu.Unlock()
		return &posthaste.Error{Code: posthaste.CodeRefused, Message: fmt.Sprintf("queue %q already has a Sleep on this doorbell", queue)}
	}
	if b.over() {
		b.mu.Unlock()
		return b.Doorbell.Sleep(ctx, queue, look) // returns the error
	}
	b.sleeps[queue] = s
	limited := b.limited[queue]
	b.mu.Unlock()
	defer b.end(s)
	if !limited && b.pacer.polling() {
		if over, err := b.poll(ctx, s, look); over {
			return err
		}
	}
	return b.rest(ctx, s, look)
}

func (b *bell) end(s *sleep) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sleeps, s.queue)
}

func (b *bell) over() bool {
	select {
	case <-b.closed:
		return true
	default:
		return false
	}
}

// poll looks whenever a round of the pacer tells it to. It returns false if the Sleep must
// continue on the doorbell.
func (b *bell) poll(ctx context.Context, s *sleep, look func(context.Context) (posthaste.LookReply, error)) (over bool, err error) {
	if k, ok := b.Doorbell.(keyHolder); ok {
		k.LetGo(s.queue)
	}
	q := &poll{queue: s.queue, turn: make(chan turn, 1), due: time.Now().Add(lookAnyway)}
	defer b.pacer.leave(q)
	for b.pacer.join(q) {
		select {
		case next := <-q.turn:
			if next == sleepNow {
				return false, nil
			}
		case <-s.wake:
			return true, nil
		case <-b.closed:
			return true, nil
		case <-ctx.Done():
			return true, ctx.Err()
		}
		began := time.Now()
		reply, err := look(ctx)
		now := time.Now()
		switch {
		case err != nil:
			return true, err
		case reply.Found:
			b.pacer.found(now.Sub(began), reply.Handed)
			return true, nil
		case reply.AtLimit:
			return false, nil
		}
		q.due = now.Add(lookAgain)
		if reply.NextDue >= 0 {
			q.due = now.Add(min(reply.NextDue, lookAgain))
		}
	}
	return false, nil
}

// rest sleeps on the doorbell and reports the duration to the pacer, if a message ended it.
func (b *bell) rest(ctx context.Context, s *sleep, look func(context.Context) (posthaste.LookReply, error)) error {
	var began, looked time.Time
	var looking time.Duration
	var last posthaste.LookReply
	err := b.Doorbell.Sleep(ctx, s.queue, func(ctx context.Context) (posthaste.LookReply, error) {
		if b.woken(s) { // before the doorbell was armed
			return posthaste.LookReply{Found: true}, nil
		}
		at := time.Now()
		if began.IsZero() {
			began = at
		}
		var err error
		last, err = look(ctx)
		looked = time.Now()
		looking += looked.Sub(at)
		return last, err
	})
	if err != nil || looked.IsZero() {
		return err
	}
	b.mu.Lock()
	if last.AtLimit {
		b.limited[s.queue] = true
	} else {
		delete(b.limited, s.queue)
	}
	woken := s.woken
	b.mu.Unlock()
	if woken {
		return nil
	}
	now := time.Now()
	due := !last.Found && last.NextDue >= 0 && now.Sub(looked) >= last.NextDue
	if !due && !last.AtLimit {
		b.pacer.woke(now.Sub(began)-looking, looking)
	}
	return nil
}

func (b *bell) woken(s *sleep) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return s.woken
}

// Wake implements [posthaste.Doorbell].
func (b *bell) Wake(queue string) {
	b.mu.Lock()
	if s := b.sleeps[queue]; s != nil {
		s.woken = true
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	b.mu.Unlock()
	b.Doorbell.Wake(queue)
}

// Close implements [posthaste.Doorbell].
func (b *bell) Close() {
	b.once.Do(func() { close(b.closed) })
	b.Doorbell.Close()
}
