//go:build unix

package acceptance

import (
	"context"
	"time"
)

// Time is what these need: nothing is waited for. A test waits by [stage.until].

// works takes as long as a handler's work.
func works(d time.Duration) { time.Sleep(d) }

// pace waits for the time at which a load is planned to send its next message.
func pace(next time.Time) { time.Sleep(time.Until(next)) }

// rest is the pause between two rounds of an actor, which ends with ctx.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
