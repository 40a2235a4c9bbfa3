package server

import (
	"context"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// readyTime limits a check of the store. Readiness must change within 5 s of losing the
// store, even if the store does not answer at all.
const readyTime = 2 * time.Second

// readiness shares one check of the store among all concurrent callers, because the
// endpoint needs no token and must not be able to flood the store.
type readiness struct {
	engine posthaste.Store
	mu     sync.Mutex
	asking *readyCheck
}

type readyCheck struct {
	done chan struct{}
	err  error
}

func (c *readiness) check(ctx context.Context) error {
	c.mu.Lock()
	asked := c.asking
	if asked == nil {
		asked = &readyCheck{done: make(chan struct{})}
		c.asking = asked
		go c.ask(asked)
	}
	c.mu.Unlock()
	select {
	case <-asked.done:
		return asked.err
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(readyTime + time.Second/2):
		// The engine ignored the end of its context. Give this check up, so that the next one
		// can find that the store is available again.
		c.mu.Lock()
		if c.asking == asked {
			c.asking = nil
		}
		c.mu.Unlock()
		return notReady(nil)
	}
}

func (c *readiness) ask(asked *readyCheck) {
	ctx, cancel := context.WithTimeout(context.Background(), readyTime)
	defer cancel()
	asked.err = c.engine.Ready(ctx)
	c.mu.Lock()
	if c.asking == asked {
		c.asking = nil
	}
	c.mu.Unlock()
	close(asked.done)
}

func notReady(cause error) error {
	return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "the store does not answer", Hint: "check that it is running and reachable", Cause: cause}
}
