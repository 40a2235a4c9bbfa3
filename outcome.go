package posthaste

import (
	"encoding/json"
	"strings"
	"time"
)

// Outcome is how a delivery ended.
type Outcome string

// The outcomes. All but Done also have a row of their own in the ledger.
const (
	OutcomeDone      Outcome = "done"
	OutcomeRetried   Outcome = "retried"    // failed, and will be retried
	OutcomeDead      Outcome = "dead"       // failed permanently; stored as a dead letter
	OutcomeCancelled Outcome = "cancelled"  // withdrawn before it was handed out, or cancelled while it ran
	OutcomeLost      Outcome = "lost"       // its worker or lease is gone; it is redelivered
	OutcomeReleased  Outcome = "released"   // returned without an attempt
	OutcomeSetAside  Outcome = "set_aside"  // of a kind that its worker does not handle; recorded as released
	OutcomeParked    Outcome = "parked"     // waits behind an earlier message of its key
	OutcomeHandedOut Outcome = "handed_out" // at most once: its result is not known
	OutcomeExpired   Outcome = "expired"    // older than the queue's MaxAge, and not handed out
	OutcomeFailed    Outcome = "failed"     // at most once: its handler failed; known only to the process
)

// State is the state of a message for one subscription.
type State string

// The states.
const (
	StateScheduled State = "scheduled" // due later, not handed out yet
	StateReady     State = "ready"     // may be handed out now
	StateRunning   State = "running"   // handed out and not settled
	StateRetrying  State = "retrying"  // failed or lost, waits for its next attempt
	StateDone      State = "done"
	StateDead      State = "dead"
	StateCancelled State = "cancelled"
	StateHandedOut State = "handed_out" // at most once: its result is not known
	StateExpired   State = "expired"    // got older than the queue's MaxAge
	StateDiscarded State = "discarded"  // was dead, and its dead letter was discarded
)

// States returns all states in display order.
func States() []State {
	return []State{StateScheduled, StateReady, StateRunning, StateRetrying, StateDone, StateHandedOut, StateDead, StateDiscarded, StateCancelled, StateExpired}
}

// MaxErrorChars is the length in characters to which error texts are truncated.
const MaxErrorChars = 4000

// ErrorText returns an error text as every engine stores it: valid UTF-8 without NUL, at
// most [MaxErrorChars] characters, never blank.
func ErrorText(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if strings.TrimSpace(text) == "" {
		return "failed without saying why"
	}
	count := 0
	for at := range text {
		if count++; count > MaxErrorChars {
			return text[:at]
		}
	}
	return text
}

// Settlement is a request to settle one delivery. Of several settlements and rescues of the
// same delivery exactly one wins.
type Settlement struct {
	Delivery DeliveryID
	// Outcome is Done to acknowledge, Retried to fail (which becomes Dead if no attempts
	// are left), Dead to fail permanently, Released to return the delivery without an
	// attempt, SetAside to do so because the worker has no handler for its kind. A message
	// that was set aside is handed out only to workers that handle its kind (see
	// [WorkerInfo.Kinds]) and to receivers. In a keyed queue it is released, and may be handed
	// out again after [SetAsideWait].
	Outcome Outcome
	// Error is the reason of a failure, stored as [ErrorText] returns it.
	Error string
	// RetryAfter, if positive, replaces the backoff of the message, its kind or its queue. A Released delivery may be
	// handed out again after it, or immediately if it is zero.
	RetryAfter time.Duration
	// Receipt is JSON to store with the outcome, for example a provider's id.
	Receipt json.RawMessage
	// Terms are words by which the message can be found. They are used if it was sent
	// without [Message.Terms], have the same limits, and apply to its further attempts and
	// its dead letter.
	Terms []string
	// Duration is how long the handler ran.
	Duration time.Duration
}

// SetAsideWait is how long a message of a keyed queue waits after it was set aside. Messages
// with its key wait behind it.
const SetAsideWait = time.Second

// SettleResult is the result of one Settlement.
type SettleResult struct {
	Delivery DeliveryID
	// Settled is false if the caller did not hold the delivery: it was settled before,
	// rescued, or never handed out.
	Settled bool
	// Outcome is the recorded outcome; empty if not settled. It is Cancelled for any outcome but
	// Done of a message that was cancelled while it was handed out.
	Outcome Outcome
	// DueAt is when the next attempt may start, if there is one.
	DueAt time.Time
	// Cancelled is set by [Engine.Extend]: the message was cancelled while it was handed out.
	Cancelled bool
	// Err is set if the settlement's content is invalid, for example a receipt that is not
	// JSON. Nothing was recorded then.
	Err error
}
