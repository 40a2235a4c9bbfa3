package worker

import (
	"time"

	"github.com/posthaste-mq/posthaste"
)

// RetryPolicy decides how long a failed message waits for its next attempt. It applies to
// failures that this process has seen: the backoff of the message, its kind or its queue
// applies after a crash. It does not decide how often a message is tried.
type RetryPolicy interface {
	// NextRetry returns the wait before the attempt after d, which failed with err. Zero or
	// less means the backoff. It is not called for errors marked by [posthaste.Permanent],
	// [posthaste.RetryAfter] and [posthaste.Snooze]. It must be safe for concurrent use.
	NextRetry(d posthaste.RawDelivery, err error) time.Duration
}

// RetryPolicyFunc is a function that implements [RetryPolicy].
type RetryPolicyFunc func(d posthaste.RawDelivery, err error) time.Duration

// NextRetry implements [RetryPolicy].
func (f RetryPolicyFunc) NextRetry(d posthaste.RawDelivery, err error) time.Duration {
	return f(d, err)
}
