package posthaste

import (
	"context"
	"time"
)

// Subscriptions adds subscriptions to a queue beside [DefaultSubscription]. Each message is
// delivered to every subscription, and settled by each independently.
type Subscriptions interface {
	// QueueSubscribe adds a subscription. If it exists with the same options nothing
	// changes; with other options the error is a [Conflict]. by is the operator.
	QueueSubscribe(ctx context.Context, by, queue, subscription string, options SubscriptionOptions) error
	// QueueUnsubscribe removes a subscription with its retries and dead letters. Space that
	// it held is released, and deliveries of its workers count as settled. The last
	// subscription of a queue cannot be removed: the error is a [Conflict].
	QueueUnsubscribe(ctx context.Context, by, queue, subscription string) error
}

// Withdrawing cancels and reschedules messages that are not handed out.
type Withdrawing interface {
	// Cancel cancels a message, or its retry, for each subscription to which it is not
	// handed out now, and returns a result for each. A message reported as canceled is
	// never handed out. Idempotent.
	Cancel(ctx context.Context, by string, id MessageID) ([]Withdrawal, error)
	// Reschedule changes the time of a message, or of its next attempt, for each
	// subscription to which it is not handed out now, and returns a result for each. A
	// time in the past means now.
	Reschedule(ctx context.Context, by string, id MessageID, at time.Time) ([]Withdrawal, error)
	// QueuePurge removes all waiting messages of a queue as of one moment, including
	// scheduled messages and retries. Messages that are handed out continue.
	QueuePurge(ctx context.Context, by, queue string) ([]Purged, error)
}

// Start positions of a subscription.
const (
	// FromNow starts with messages that are committed after it was created.
	FromNow = "now"
	// FromOldest starts with the oldest stored message.
	FromOldest = "oldest"
)

// SubscriptionOptions select the messages of a subscription. They cannot be changed.
type SubscriptionOptions struct {
	// From is [FromNow] (default) or [FromOldest].
	From string
	// Scheduled, with FromNow, adds messages that were sent before and fall due later.
	Scheduled bool
	// Filter selects messages (default: all).
	Filter Filter
	// MaxLag limits how long the subscription may hold space that is needed. Older messages
	// may be skipped then, which is recorded in the actions. Zero means that no message is
	// ever skipped. Engines that do not reclaim space return Unsupported.
	MaxLag time.Duration
}

// Filter selects messages whose kind is one of Kinds and whose headers each have one of the
// values. An empty field selects all.
type Filter struct {
	Kinds   []string
	Headers map[string][]string
}

// Withdrawal is the result of canceling or rescheduling a message for one subscription.
type Withdrawal struct {
	Subscription string
	// InTime says that the change took effect: the message was not handed out before.
	InTime bool
	// State is the message's state for this subscription after the call.
	State State
}

// Purged is the number of messages purged from one subscription. It includes messages that
// the subscription's filter would have skipped.
type Purged struct {
	Subscription string
	Messages     int64
}

// Finding is a present or expected problem that [Admin].Doctor reports.
type Finding struct {
	// Check names the check that found it: identity, clock, workers, ring, …
	Check string
	// Fault says that something does not work now; else it is a warning.
	Fault bool
	// Message describes the problem, and Hint what to do.
	Message string
	Hint    string
	// Queue and Subscription are set if the finding concerns a single one.
	Queue, Subscription string
}
