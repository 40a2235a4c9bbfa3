package posthastetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/memory"
)

// Clock is the time of engines in memory that a test moves. It stands still between calls of
// [Clock.Advance]. It is safe for concurrent use.
//
// These follow the clock: due times of messages, also of retries and snoozed ones; leases of
// received messages; schedules; expiry, windows of dedupe keys and idempotency keys, lifetimes
// of tokens; and all times that the engine shows. These follow the real time: timeouts of
// handlers, leases of workers, which their heartbeats extend, and whatever the program's own
// code takes from package time.
type Clock struct {
	moving sync.Mutex // held by Advance

	mu      sync.Mutex
	now     time.Time
	engines []*memory.Engine
}

// NewClock returns a clock that shows a time, for [Memory].
func NewClock(now time.Time) *Clock { return &Clock{now: now} }

// Now returns the time that the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock forward. Messages that become due are available to workers and
// receivers when it returns, and those that wait for messages are woken; Advance does not wait
// for handlers. It stops at each tick of a schedule on its way, and sends the tick's message,
// as if a worker had run all the time.
func (c *Clock) Advance(d time.Duration) {
	if d < 0 {
		panic(fmt.Sprintf("posthastetest: a clock cannot go back by %s", -d))
	}
	c.moving.Lock()
	defer c.moving.Unlock()
	for end := c.Now().Add(d); c.Now().Before(end); {
		c.step(end)
	}
}

// step moves the clock to the next tick, at most to end.
func (c *Clock) step(end time.Time) {
	c.mu.Lock()
	engines := c.engines
	c.mu.Unlock()
	next := end
	for _, e := range engines {
		if at := e.NextTick(); !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	c.mu.Lock()
	c.now = next
	c.mu.Unlock()
	for _, e := range engines {
		e.Moved()
	}
}

// open returns an engine that follows the clock.
func (c *Clock) open() posthaste.Store {
	e := memory.OpenAt(c.Now)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.engines = append(c.engines, e)
	return e
}
