package worker

import (
	"context"
	"slices"
	"sync"

	"github.com/posthaste-mq/posthaste"
)

// sharedBell lets the fetchers of several subscriptions sleep on one queue. A
// doorbell allows one Sleep per queue, so that one is held for all of them.
type sharedBell struct {
	posthaste.Doorbell
	beds map[string]*bed // of queues with several subscriptions
}

// shareBell returns bell itself where no queue has several subscriptions. The
// contexts of all Sleeps must end with ctx.
func shareBell(ctx context.Context, bell posthaste.Doorbell, subs []*subscription) posthaste.Doorbell {
	shared := &sharedBell{Doorbell: bell, beds: map[string]*bed{}}
	seen := map[string]bool{}
	for _, s := range subs {
		if q := s.ref.Queue; seen[q] {
			shared.beds[q] = &bed{ctx: ctx, bell: bell, queue: q}
		} else {
			seen[q] = true
		}
	}
	if len(shared.beds) == 0 {
		return bell
	}
	return shared
}

// Sleep implements [posthaste.Doorbell].
func (s *sharedBell) Sleep(ctx context.Context, queue string, look func(ctx context.Context) (posthaste.LookReply, error)) error {
	b := s.beds[queue]
	if b == nil {
		return s.Doorbell.Sleep(ctx, queue, look)
	}
	return <-b.join(look)
}

// bed is the one Sleep of a queue.
type bed struct {
	ctx   context.Context
	bell  posthaste.Doorbell
	queue string

	mu       sync.Mutex
	sleepers []*sleeper
	asleep   bool // the goroutine that sleeps for them runs
	joined   bool // somebody came since it last began
}

type sleeper struct {
	look func(ctx context.Context) (posthaste.LookReply, error)
	done chan error
}

func (b *bed) join(look func(ctx context.Context) (posthaste.LookReply, error)) <-chan error {
	s := &sleeper{look: look, done: make(chan error, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sleepers = append(b.sleepers, s)
	if b.asleep {
		// It has to look once more after the bell was armed.
		b.joined = true
		b.bell.Wake(b.queue)
	} else {
		b.asleep = true
		go b.sleep()
	}
	return s.done
}

// sleep goes on until nobody is left.
func (b *bed) sleep() {
	for b.begin() {
		err := b.bell.Sleep(b.ctx, b.queue, b.look)
		b.mu.Lock()
		// Whoever came may not have been looked for, and woke the others for nothing.
		if !b.joined || err != nil {
			for _, s := range b.sleepers {
				s.done <- err
			}
			b.sleepers = nil
		}
		b.mu.Unlock()
	}
}

func (b *bed) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.joined = false
	b.asleep = len(b.sleepers) > 0
	return b.asleep
}

// look looks for everybody. Who finds something gets up; the others sleep on.
func (b *bed) look(ctx context.Context) (posthaste.LookReply, error) {
	b.mu.Lock()
	sleepers := slices.Clone(b.sleepers)
	b.mu.Unlock()
	all := posthaste.LookReply{NextDue: -1, AtLimit: true}
	for _, s := range sleepers {
		reply, err := s.look(ctx)
		all.AtLimit = all.AtLimit && reply.AtLimit
		if err != nil || reply.Found {
			b.rise(s, err)
		} else if reply.NextDue >= 0 && (all.NextDue < 0 || reply.NextDue < all.NextDue) {
			all.NextDue = reply.NextDue
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	all.Found = len(b.sleepers) == 0
	return all, nil
}

func (b *bed) rise(s *sleeper, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sleepers = slices.DeleteFunc(b.sleepers, func(other *sleeper) bool { return other == s })
	s.done <- err
}
