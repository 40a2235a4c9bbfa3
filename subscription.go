package posthaste

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

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

// Passes reports whether the filter selects a message with the kind and headers.
func (f *Filter) Passes(kind string, headers map[string]string) bool {
	if len(f.Kinds) > 0 && !slices.Contains(f.Kinds, kind) {
		return false
	}
	for name, words := range f.Headers {
		if word, ok := headers[name]; !ok || !slices.Contains(words, word) {
			return false
		}
	}
	return true
}

// Complete checks the options, and normalizes them so that they can be compared. It is for engines,
// which also check whether they have MaxLag.
func (o *SubscriptionOptions) Complete() error {
	o.From = cmp.Or(o.From, FromNow)
	switch {
	case o.From != FromNow && o.From != FromOldest:
		return Invalidf("from", "from must be %s or %s, got %q", FromNow, FromOldest, o.From)
	case o.Scheduled && o.From == FromOldest:
		return Invalidf("scheduled", "from %[1]s and scheduled exclude each other: %[1]s includes scheduled messages", FromOldest)
	case o.MaxLag < 0:
		return Invalidf("max_lag", "max_lag must be above zero")
	case slices.Contains(o.Filter.Kinds, ""):
		return Invalidf("filter", "the filter needs a word or a list of words for kind, and has an empty word, which no message has")
	}
	sorted := func(words []string) []string { return slices.Compact(slices.Sorted(slices.Values(words))) }
	o.Filter.Kinds = sorted(o.Filter.Kinds)
	o.Filter.Headers = maps.Clone(o.Filter.Headers)
	for name, words := range o.Filter.Headers {
		if len(words) == 0 {
			return Invalidf("filter", "the filter needs a word or a list of words for header %s, and has none", name)
		}
		if name == "traceparent" {
			return &Error{Code: CodeInvalid, Field: "filter", Message: "a filter cannot use the header traceparent, which differs in every trace",
				Hint: "send messages with another header to filter by"}
		}
		o.Filter.Headers[name] = sorted(words)
	}
	if len(o.Filter.Headers) == 0 {
		o.Filter.Headers = nil
	}
	return nil
}

// Details returns the details of the [Action] that records a new subscription with the name. It is
// for engines.
func (o *SubscriptionOptions) Details(name string) map[string]any {
	details := map[string]any{"subscription": name}
	if o.From != FromNow {
		details["from"] = o.From
	}
	if o.Scheduled {
		details["scheduled"] = true
	}
	wanted := map[string]any{}
	if len(o.Filter.Kinds) > 0 {
		wanted["kind"] = o.Filter.Kinds
	}
	if len(o.Filter.Headers) > 0 {
		wanted["headers"] = o.Filter.Headers
	}
	if len(wanted) > 0 {
		details["filter"] = wanted
	}
	return details
}

// Withdrawal is the result of cancelling or rescheduling a message for one subscription.
type Withdrawal struct {
	Subscription string
	// InTime says that the change took effect: the message was not handed out before. It is false
	// for a message that was cancelled while it ran, also when Cancel is repeated after its end.
	InTime bool
	// State is the message's state for this subscription after the call.
	State State
	// Requested says that the message is handed out and was cancelled: its holder is told (see
	// [ErrCancelled]), and unless it acknowledges the message, that becomes cancelled. Only
	// Cancel sets it.
	Requested bool
}

// Accepted reports whether the call changed something for the subscription, or asked the holder
// of the message to stop.
func (w Withdrawal) Accepted() bool { return w.InTime || w.Requested }

// Cancelled reports whether the message is cancelled for the subscription, by this call of Cancel
// or before, or becomes cancelled unless its holder acknowledges it.
func (w Withdrawal) Cancelled() bool { return w.Requested || w.State == StateCancelled }

// RunResult is the result of running a message now for one subscription.
type RunResult struct {
	Subscription string
	// Due says that the message waits, and is due now.
	Due bool
	// State is the message's state for this subscription after the call.
	State State
	// HeldBy names what may still hold the message: paused, key_paused, kind_paused, set_aside (no
	// running worker has said that it handles its kind), order (of its key), concurrency,
	// rate_limit, key_concurrency, key_rate_limit.
	HeldBy []string
}

// Purged is the number of messages purged from one subscription. It includes messages that
// the subscription's filter would have skipped.
type Purged struct {
	Subscription string
	Messages     int64
}

// Finding is a present or expected problem that [Observer].Doctor reports.
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

// RefuseContents returns an error if the subscription, of that queue, is not empty. It is for engines
// whose counts do not lag.
func (s *SubscriptionInfo) RefuseContents(queue string) error {
	if s.Depth+s.InFlight+s.Dead == 0 {
		return nil
	}
	return &Error{Code: CodeRefused, Field: "if_empty", Message: fmt.Sprintf("subscription '%s' of queue '%s' is not empty: %d messages wait, %d are in flight, and %d are dead letters", s.Name, queue, s.Depth, s.InFlight, s.Dead),
		Hint: "handle or purge its messages first"}
}
