// Package sharedbell shares a doorbell among any number of waiters per queue: workers of
// several subscriptions, and requests of the HTTP server.
package sharedbell

import (
	"context"
	"slices"
	"sync"

	"github.com/posthaste-mq/posthaste"
)

// Bell is a doorbell that allows any number of concurrent Sleeps per queue. The doorbell
// below it allows one, so that all of them share it.
type Bell struct {
	posthaste.Doorbell
	ctx context.Context

	mu     sync.Mutex
	groups map[string]*group // by queue
}

// New shares bell. The contexts of all Sleeps must end with ctx.
func New(ctx context.Context, bell posthaste.Doorbell) *Bell {
	return &Bell{Doorbell: bell, ctx: ctx, groups: map[string]*group{}}
}

// Sleep implements [posthaste.Doorbell] for any number of waiters. It returns when its own
// look finds messages or fails; the other waiters go on sleeping.
func (b *Bell) Sleep(_ context.Context, queue string, look func(ctx context.Context) (posthaste.LookReply, error)) error {
	return <-b.join(queue, look)
}

// group is the waiters that share the Sleep of a queue. Bell.mu guards all of it.
type group struct {
	*Bell
	queue   string
	waiters []*waiter
	joined  bool // a waiter joined since the last Sleep began
}

type waiter struct {
	look func(ctx context.Context) (posthaste.LookReply, error)
	done chan error
}

func (b *Bell) join(queue string, look func(ctx context.Context) (posthaste.LookReply, error)) <-chan error {
	s := &waiter{look: look, done: make(chan error, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	shared := b.groups[queue]
	if shared == nil {
		shared = &group{Bell: b, queue: queue, waiters: []*waiter{s}}
		b.groups[queue] = shared
		go shared.sleep()
		return s.done
	}
	// After it has armed the bell, the group must look again for the new waiter.
	shared.waiters = append(shared.waiters, s)
	shared.joined = true
	b.Wake(queue)
	return s.done
}

// sleep sleeps until the group has no waiters.
func (g *group) sleep() {
	for g.begin() {
		err := g.Doorbell.Sleep(g.ctx, g.queue, g.look)
		g.mu.Lock()
		// If a waiter joined, it woke the others for nothing and may not have looked itself.
		if !g.joined || err != nil {
			for _, s := range g.waiters {
				s.done <- err
			}
			g.waiters = nil
		}
		g.mu.Unlock()
	}
}

func (g *group) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.joined = false
	if len(g.waiters) == 0 {
		delete(g.groups, g.queue)
	}
	return len(g.waiters) > 0
}

// look calls the looks of all waiters, and removes those that found messages or failed.
func (g *group) look(ctx context.Context) (posthaste.LookReply, error) {
	g.mu.Lock()
	waiters := slices.Clone(g.waiters)
	g.mu.Unlock()
	all := posthaste.LookReply{NextDue: -1, AtLimit: true}
	for _, s := range waiters {
		reply, err := s.look(ctx)
		all.AtLimit = all.AtLimit && reply.AtLimit
		if err != nil || reply.Found {
			g.remove(s, err)
		} else if reply.NextDue >= 0 && (all.NextDue < 0 || reply.NextDue < all.NextDue) {
			all.NextDue = reply.NextDue
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	all.Found = len(g.waiters) == 0
	return all, nil
}

// remove ends the Sleep of a waiter.
func (g *group) remove(s *waiter, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiters = slices.DeleteFunc(g.waiters, func(other *waiter) bool { return other == s })
	s.done <- err
}
