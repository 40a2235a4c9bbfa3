package posthaste

import (
	"cmp"
	"time"
)

// DefaultSubscription is the subscription that every queue is created with.
const DefaultSubscription = "default"

// QueueRef names a subscription of a queue. An empty Subscription means
// [DefaultSubscription].
type QueueRef struct {
	Queue        string
	Subscription string
}

// Normal returns the reference with [DefaultSubscription] in place of an empty one.
func (r QueueRef) Normal() QueueRef {
	if r.Subscription == "" {
		r.Subscription = DefaultSubscription
	}
	return r
}

// QueueOptions are a queue's settings. Zero values mean the default.
type QueueOptions struct {
	// MaxAttempts is how often a message is tried (default 20, at most 1,000).
	MaxAttempts int
	// BackoffBase is the upper bound of the wait before the second attempt (default 1 s).
	// Each further attempt doubles it. Full jitter applies.
	BackoffBase time.Duration
	// BackoffMax is the upper bound of all waits (default 1 h, at most 365 days). It must
	// not be below BackoffBase.
	BackoffMax time.Duration
	// Timeout is the maximum duration of one run of a handler (default 30 s, at most 365
	// days).
	Timeout time.Duration
	// MaxAge is how old a message may get: an older one is not handed out any more, and ends
	// as [OutcomeExpired]. Its age counts from when it was sent; that of a scheduled,
	// rescheduled or replayed message counts from then. 0 means any age (at most 36,500
	// days).
	MaxAge time.Duration
	// MaxPayload is the maximum size of a payload in bytes (default 1 MiB, at most 32 MiB).
	MaxPayload int
	// Lanes is how many SQL receivers can read in parallel (default 1, at most 64). With
	// more than one lane, a queue that is not ordered keeps no order. In an ordered queue
	// (default 8) it is how many workers can read side by side.
	Lanes int
	// Mode is the delivery guarantee (default [AtLeastOnce]). [AtMostOnce] excludes
	// MaxAttempts and backoff, because nothing is retried.
	Mode Mode
	// Retention is how long settled messages can be looked up after their space in the log
	// was reclaimed; 0 means not at all.
	Retention time.Duration
	// RetainPayload also retains payloads. It needs Retention.
	RetainPayload bool
	// Ordered delivers the messages of each key strictly first in, first out, through
	// retries and crashes. Each message then needs a key.
	Ordered bool
	// StopOnDead stops a key of an ordered queue at a dead message until that message is
	// replayed or discarded. By default the key continues.
	StopOnDead bool
	// Fair lets the keys of a queue take turns, so that a backlog of one key does not delay
	// the others.
	Fair bool
	// Limits bound how much is handed out (default: no bounds).
	Limits QueueLimits
	// Kinds has options of kinds of messages, which take precedence over MaxAttempts,
	// Timeout, BackoffBase and BackoffMax (default: none; at most [MaxKinds]). An update
	// replaces the options of the kinds that it names, and removes a kind whose options are
	// zero.
	Kinds map[string]KindOptions
	// Owner says who declares the queue (default: none). It has the characters of a name.
	// [Declaration.Apply] changes only queues of the declaration's owner, or without one.
	Owner string
}

// Attempts returns the options of the attempts of a message of this queue: its own, then those
// of its kind, then those of the queue. It is for engines.
func (o *QueueOptions) Attempts(kind string, own KindOptions) KindOptions {
	of := o.Kinds[kind]
	return KindOptions{
		MaxAttempts: cmp.Or(own.MaxAttempts, of.MaxAttempts, o.MaxAttempts),
		Timeout:     cmp.Or(own.Timeout, of.Timeout, o.Timeout),
		Backoff:     Backoff{Base: cmp.Or(own.Backoff.Base, of.Backoff.Base, o.BackoffBase), Max: cmp.Or(own.Backoff.Max, of.Backoff.Max, o.BackoffMax)},
	}
}

// QueueLimits bound how much of a queue is handed out, over all processes together and for
// each subscription separately. Messages over a limit wait: no attempt is counted and no
// lease runs meanwhile. Zero values mean no limit.
type QueueLimits struct {
	// Concurrency is the maximum number of messages that are handed out and not settled (at
	// most 100,000). It does not apply to queues with [AtMostOnce].
	Concurrency int
	// RateLimit is the maximum number of messages handed out in a period.
	RateLimit Rate
	// KeyConcurrency is Concurrency for each key. It does not apply to messages without a
	// key.
	KeyConcurrency int
	// KeyRateLimit is RateLimit for each key.
	KeyRateLimit Rate
}

// Mode is a queue's delivery guarantee.
type Mode string

// The modes (docs/explanation/guarantees.md).
const (
	AtLeastOnce Mode = "at_least_once" // redelivered until settled
	AtMostOnce  Mode = "at_most_once"  // handed out once, and settled by that
)

// QueueInfo is a queue with its counters. Counts are as of CountedAt.
type QueueInfo struct {
	Name      string
	Options   QueueOptions
	CreatedAt time.Time
	// PausedAt is when the queue was paused; zero if it is not paused.
	PausedAt time.Time
	// PausedKeys are the first 100 paused keys, in order.
	PausedKeys []string
	// PausedKinds are the paused kinds, in order.
	PausedKinds []string
	// Subscriptions has the counters of each subscription.
	Subscriptions []SubscriptionInfo
}

// SubscriptionInfo has the counters of a subscription.
type SubscriptionInfo struct {
	Name string
	// Filter and MaxLag are as in [SubscriptionOptions].
	Filter Filter
	MaxLag time.Duration
	// Depth is how many messages wait, including scheduled messages and retries.
	Depth int64
	// InFlight is how many messages are handed out and not settled.
	InFlight int64
	// Dead is the number of dead letters.
	Dead int64
	// Totals since the queue was created.
	Sent, Done, Retried, Lost int64
	// Withdrawn counts messages that were cancelled, rescheduled, purged or skipped by MaxLag
	// before they were handed out, since the queue was created.
	Withdrawn int64
	// Expired counts messages that were not handed out because they were older than the
	// queue's MaxAge, since the queue was created.
	Expired int64
	// Rates per second over the last counting interval.
	SentPerSecond, DonePerSecond float64
	// OldestAge is the age of the oldest message that waits and may be handed out; zero if no
	// message may.
	OldestAge time.Duration
	// SetAside has the messages that wait for a worker that handles their kind, by kind.
	SetAside []SetAside
	// CountedAt is when the counters were read.
	CountedAt time.Time
}

// SetAside describes messages of one kind that wait because a worker without a handler for
// this kind returned them, or because the kind is paused.
type SetAside struct {
	Kind string
	// Waiting is how many messages wait. Engines may count up to 10,000 only.
	Waiting int64
	// OldestAge is the time since the first of them was set aside last.
	OldestAge time.Duration
	// Known says that a running worker has said that it handles the kind.
	Known bool
	// Paused says that the kind is paused ([OfKind]).
	Paused bool
}
