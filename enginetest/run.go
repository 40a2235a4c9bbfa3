package enginetest

import (
	"context"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// All returns the capabilities of a store that has every feature.
func All() posthaste.Capabilities {
	return posthaste.Capabilities{Subscriptions: true, MaxLag: true, Limits: true, Ordered: true, OrderedRuns: true, StopOnDead: true, Exact: true, PauseKinds: true, AtMostOnce: true, SendAcross: true,
		Idempotency: true, Attempts: true, Search: true, Withdrawal: true, Updates: true, Unique: true, Schedules: true, Tokens: true, SQL: true, Totals: true, Charts: true}
}

// Run runs the whole suite. can are the capabilities that the store must have and report; tests
// that need others are skipped. open returns an empty store, or one whose queues no other test
// uses, and closes it with t.Cleanup. The tests run in parallel, each with its own store.
func Run(t *testing.T, can posthaste.Capabilities, open func(t *testing.T) posthaste.Store) {
	t.Run("Capabilities", func(t *testing.T) {
		t.Parallel()
		if got := open(t).Capabilities(); got != can {
			t.Errorf("the store reports %+v, want %+v", got, can)
		}
	})
	for _, group := range [][]test{sending, choosing, settling, leasing, administering, waking, withdrawing, cancelling, tokens, scheduling, auditing, limiting, ordering, expiring, attempting, kindOptions, kinds, setAside, pausedKinds, pausing, updating, noting, backlog, unique, charting} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				if lacking := c.lacking(can); lacking != "" {
					t.Skip("the store does not have the capability " + lacking)
				}
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
				t.Cleanup(cancel)
				c.run(&suite{T: t, engine: open(t), ctx: ctx, queue: "suite"})
			})
		}
	}
}
