// Package sharedbell lets several subscriptions of a queue be slept on at the same
// time, by workers and by the HTTP server.
package sharedbell

import (
	"context"
	"slices"
	"sync"

	"github.com/posthaste-mq/posthaste"
)

// Bell is a doorbell on which any number may sleep on one queue. A doorbell
// allows one Sleep per queue, so that one is held for all of them.
type Bell struct {
	posthaste.Doorbell
	ctx context.Context

	mu   sync.Mutex
	beds map[string]*bed // of queues that somebody sleeps on
}

// New shares bell. The contexts of all Sleeps must end with ctx.
func New(ctx context.Context, bell posthaste.Doorbell) *Bell {
	return &Bell{Doorbell: bell, ctx: ctx, beds: map[string]*bed{}}
}

// Sleep implements [posthaste.Doorbell], for any number of sleepers. Whose look
// finds something, or fails, gets up; the others sleep on.
func (b *Bell) Sleep(_ context.Context, queue string, look func(ctx context.Context) (posthaste.LookReply, error)) error {
	return <-b.join(queue, look)
}

// bed is the one Sleep of a queue. Bell.mu guards all of it.
type bed struct {
	*Bell
	queue    string
	sleepers []*sleeper
	joined   bool // somebody came since it last began
}

type sleeper struct {
	look func(ctx context.Context) (posthaste.LookReply, error)
	done chan error
}

func (b *Bell) join(queue string, look func(ctx context.Context) (posthaste.LookReply, error)) <-chan error {
	s := &sleeper{look: look, done: make(chan error, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	shared := b.beds[queue]
	if shared == nil {
		shared = &bed{Bell: b, queue: queue, sleepers: []*sleeper{s}}
		b.beds[queue] = shared
		go shared.sleep()
		return s.done
	}
	// It has to look once more after the bell was armed.
	shared.sleepers = append(shared.sleepers, s)
	shared.joined = true
	b.Wake(queue)
	return s.done
}

// sleep goes on until nobody is left.
func (b *bed) sleep() {
	for b.begin() {
		err := b.Doorbell.Sleep(b.ctx, b.queue, b.look)
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
	if len(b.sleepers) == 0 {
		delete(b.beds, b.queue)
	}
	return len(b.sleepers) > 0
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
