package posthaste

import "time"

// Unique sends a message only while no earlier message of the queue holds the same key. It is
// decided when a message is sent or replayed, and docs/guides/unique.md compares it with dedupe keys. The
// zero value is valid: unique by kind and payload, until finished, and the earlier one is kept.
type Unique struct {
	// Key is chosen by the sender (255 bytes at most). Empty means a hash of kind and payload.
	Key string
	// Until is when a message releases the key. Empty means [UntilFinished].
	Until Until
	// Exists is what happens if the key is held. Empty means [KeepExisting].
	Exists Exists
	// MaxDelay, with [ReplaceExisting], bounds how long a message is delayed, also by its own
	// delay: it is due at most that long after it was first sent. Zero means no bound.
	MaxDelay time.Duration
}

// Until is when a message releases its unique key.
type Until string

// When a unique key is released.
const (
	// UntilStarted releases the key when a subscription is handed the message. Retries do
	// not take it again.
	UntilStarted Until = "started"
	// UntilFinished releases the key when the message is done, dead, cancelled, expired or
	// purged for every subscription.
	UntilFinished Until = "finished"
	// UntilResolved also waits until a dead letter is replayed and finished, or discarded.
	UntilResolved Until = "resolved"
)

// Exists is what happens to a message whose unique key is held.
type Exists string

// What happens to a message whose unique key is held.
const (
	// KeepExisting keeps the earlier message. The new one is not stored.
	KeepExisting Exists = "keep"
	// ReplaceExisting replaces the content and the due time of the earlier message if no
	// subscription was handed it, and else keeps it. Its id and CreatedAt stay. Engines need
	// the new message to have the same key in a queue that looks at keys, and to be for the
	// same subscriptions; otherwise the error is [CodeConflict]. Not in ordered queues.
	ReplaceExisting Exists = "replace"
)
