package relay

import (
	"context"
	"errors"
	"fmt"

	"github.com/posthaste-mq/posthaste"
)

// Defaults of a relay: the maximum number of messages that are published together, and the
// number of such batches at a time.
const (
	DefaultBatch       = 500
	DefaultConcurrency = 4
)

// Bounded sets a setting of 0 to its default, and returns an error if it is not between 1
// and limit.
func Bounded(field string, n *int, by, limit int) error {
	if *n == 0 {
		*n = by
	}
	if *n < 1 || *n > limit {
		return posthaste.Invalidf(field, "%s must be 1 to %d, got %d", field, limit, *n)
	}
	return nil
}

// Failed returns an error with a cause (nil: unknown) that wraps ctx's error if ctx ended.
func Failed(ctx context.Context, what string, cause error) error {
	if cause != nil && !errors.Is(cause, ctx.Err()) {
		what += ": " + cause.Error()
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return errors.New(what)
}

// HintCertificate is the hint for a broker's certificate that cannot be verified.
const HintCertificate = "use a certificate that is valid for the name in the URL and issued by an authority that this machine trusts"
