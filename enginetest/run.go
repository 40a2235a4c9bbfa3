package enginetest

import (
	"context"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Run runs the whole suite. open returns an empty engine, or one whose queues no other test
// uses, and closes it with t.Cleanup. The tests run in parallel, each with its own engine.
func Run(t *testing.T, open func(t *testing.T) posthaste.Store) {
	RunWith(t, Capabilities{}, open)
}

// RunWith is [Run] for an engine that lacks some features.
func RunWith(t *testing.T, can Capabilities, open func(t *testing.T) posthaste.Store) {
	for _, group := range [][]test{sending, choosing, settling, leasing, administering, waking, withdrawing, tokens, scheduling, auditing, limiting, ordering, backlog} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				if why := can.lacks(c); why != "" {
					t.Skip("the engine declares: " + why)
				}
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
				t.Cleanup(cancel)
				c.run(&suite{T: t, engine: open(t), ctx: ctx, queue: "suite"})
			})
		}
	}
}
