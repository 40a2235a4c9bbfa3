package posthaste

import (
	"encoding/json"
	"strings"
	"time"
)

// Outcome says how one delivery ended.
type Outcome string

// The outcomes. All but Done also leave a row of their own in the ledger.
const (
	Done      Outcome = "done"
	Retried   Outcome = "retried"    // failed, and will be tried again
	Dead      Outcome = "dead"       // failed for good; a dead letter keeps it
	Cancelled Outcome = "cancelled"  // withdrawn before it was handed out
	Lost      Outcome = "lost"       // its holder is gone; it was handed out anew
	Released  Outcome = "released"   // handed back; not an attempt
	Parked    Outcome = "parked"     // held back behind its key
	HandedOut Outcome = "handed_out" // at most once: nothing more is known of it
	Failed    Outcome = "failed"     // at most once: its handler failed; only the process knows
)

// State is where a message stands for one subscription.
type State string

// The states a person sees. Besides these a message may be [Done], [Dead] or
// [Cancelled], with the same words.
const (
	StateScheduled State = "scheduled" // due later, not handed out yet
	StateReady     State = "ready"     // may be handed out now
	StateRunning   State = "running"   // handed out and not settled
	StateRetrying  State = "retrying"  // failed or lost, waits for its next attempt
	StateDone      State = "done"
	StateDead      State = "dead"
	StateCancelled State = "cancelled"
	StateHandedOut State = "handed_out" // at most once: nothing more is known of it
	StateDiscarded State = "discarded"  // was dead, and its dead letter was discarded
)

// States are all states, in the order in which people list them.
func States() []State {
	return []State{StateScheduled, StateReady, StateRunning, StateRetrying, StateDone, StateHandedOut, StateDead, StateDiscarded, StateCancelled}
}

// MaxErrorChars is where texts of errors are cut.
const MaxErrorChars = 4000

// ErrorText is the text of a failure as every engine keeps it: valid UTF-8 without NUL, of
// at most [MaxErrorChars] characters, and never blank.
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

// Settlement asks to settle one delivery. Exactly one of a settlement, a
// rescue and a late settlement of the same delivery wins.
type Settlement struct {
	Delivery DeliveryID
	// Outcome is Done to acknowledge, Retried to fail (which may become Dead
	// when attempts are used up), Dead to fail for good, Released to hand
	// back without an attempt.
	Outcome Outcome
	// Error says why it failed, and is kept as [ErrorText] makes it.
	Error string
	// RetryAfter, if positive, replaces the queue's backoff. What is Released
	// may be handed out again at once, or after it.
	RetryAfter time.Duration
	// Receipt is JSON to keep with the outcome, for example a provider's id.
	Receipt json.RawMessage
	// Terms are words to find the message by. They count where it was sent
	// without [Message.Terms], with the same limits, and its further attempts
	// and its dead letter have them, too.
	Terms []string
	// Duration is how long the handler ran.
	Duration time.Duration
}

// SettleResult answers one Settlement.
type SettleResult struct {
	Delivery DeliveryID
	// Settled is false when the delivery was no longer the caller's: settled
	// before, rescued, or never handed out.
	Settled bool
	// Outcome is what the delivery became; empty if not settled.
	Outcome Outcome
	// DueAt is when the next attempt may start, where there is one.
	DueAt time.Time
	// Err is set when the store refused this settlement for its content
	// (for example a receipt that is no JSON, or a term that is too long); nothing was recorded then.
	Err error
}
