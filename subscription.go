package posthaste

import (
	"context"
	"time"
)

// Subscriptions is how a queue gets more readers than [DefaultSubscription]:
// each message is delivered to every subscription, and each ends it by itself.
type Subscriptions interface {
	// QueueSubscribe adds a subscription. One that is there with the same
	// options is left as it is; with others the error is a [Conflict]. by says
	// who asked.
	QueueSubscribe(ctx context.Context, by, queue, subscription string, options SubscriptionOptions) error
	// QueueUnsubscribe ends a subscription with its retries and dead letters.
	// What it held back is let go of, and what its workers hold counts as
	// settled. The only one of a queue stays: the error is a [Conflict].
	QueueUnsubscribe(ctx context.Context, by, queue, subscription string) error
}

// Withdrawing is how messages are taken back that were not handed out.
type Withdrawing interface {
	// Cancel takes a message back from every subscription that it was not
	// handed out to, retries included, and tells each. What is told to be
	// cancelled is never handed out. Repeated it answers the same.
	Cancel(ctx context.Context, by string, id MessageID) ([]Withdrawal, error)
	// Reschedule moves the time of a message, or of its next attempt, for every
	// subscription that it was not handed out to, and tells each. A time that
	// has passed means at once.
	Reschedule(ctx context.Context, by string, id MessageID, at time.Time) ([]Withdrawal, error)
	// QueuePurge takes back all messages of a queue that wait, scheduled ones
	// and retries included, as of one moment. What is handed out runs on.
	QueuePurge(ctx context.Context, by, queue string) ([]Purged, error)
}

// Where a subscription begins.
const (
	// FromNow is what commits after it was made.
	FromNow = "now"
	// FromOldest is all that is kept.
	FromOldest = "oldest"
)

// SubscriptionOptions say what a subscription gets. They cannot be changed.
type SubscriptionOptions struct {
	// From is [FromNow] (default) or [FromOldest].
	From string
	// Scheduled, with FromNow, adds what was sent before and falls due later.
	Scheduled bool
	// Filter lets through what it names (default: everything).
	Filter Filter
	// MaxLag bounds how long the subscription may keep space that is wanted: what
	// lies further behind may be skipped, which is recorded in the actions. Zero
	// means that nothing is ever skipped. Engines that reclaim no space refuse it.
	MaxLag time.Duration
}

// Filter selects messages: the kind must be one of Kinds, and each header named
// one of its values. What is empty lets everything through.
type Filter struct {
	Kinds   []string
	Headers map[string][]string
}

// Withdrawal tells for one subscription whether a message was taken back.
type Withdrawal struct {
	Subscription string
	// InTime says that it was not handed out and is not going to be, as it was.
	InTime bool
	// State is what the message is now for this subscription.
	State State
}

// Purged tells how many messages were taken back from one subscription. Where
// that has a filter, those count too that it would have left out.
type Purged struct {
	Subscription string
	Messages     int64
}

// Finding is one thing that is wrong, or soon will be.
type Finding struct {
	// Check names the check that found it: identity, clock, workers, ring, …
	Check string
	// Fault says that something does not work now; else it is a warning.
	Fault bool
	// Message says what was found, and Hint what to do.
	Message string
	Hint    string
	// Queue and Subscription are those that it is about, if it is about one.
	Queue, Subscription string
}
