package relay

import (
	"context"
	"errors"
	"fmt"

	posthaste "github.com/posthaste-mq/posthaste"
)

// What a relay does where nothing is said: the most messages that are published in one
// go, and how many such batches are on their way at the same time.
const (
	DefaultBatch       = 500
	DefaultConcurrency = 4
)

// Bounded gives a setting its default where it is 0, and says what is wrong where it is
// not 1 to limit.
func Bounded(field string, n *int, by, limit int) error {
	if *n == 0 {
		*n = by
	}
	if *n < 1 || *n > limit {
		return posthaste.Invalidf(field, "%s must be 1 to %d, and is %d", field, limit, *n)
	}
	return nil
}

// Failed says what happened, why (nil: nothing more is known), and whether the time was up.
func Failed(ctx context.Context, what string, cause error) error {
	if cause != nil && !errors.Is(cause, ctx.Err()) {
		what += ": " + cause.Error()
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return errors.New(what)
}
