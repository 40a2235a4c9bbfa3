package wire

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/posthaste-mq/posthaste"
)

// ParseSubscriptionOptions reads the options of a subscription: from, scheduled, filter
// (kind and headers, each with an array of words) and max_lag. Empty input means {}.
func ParseSubscriptionOptions(data []byte) (posthaste.SubscriptionOptions, error) {
	var s posthaste.SubscriptionOptions
	if len(bytes.TrimSpace(data)) == 0 {
		return s, nil
	}
	o, err := ParseObject("", data)
	if err != nil {
		return s, err
	}
	s.From = o.Text("from")
	s.Scheduled = o.Bool("scheduled", false)
	s.MaxLag = o.positiveDuration("max_lag")
	if filter := o.Object("filter"); filter != nil {
		s.Filter.Kinds = filter.words("kind")
		if headers := filter.Object("headers"); headers != nil {
			s.Filter.Headers = map[string][]string{}
			for _, name := range headers.order {
				s.Filter.Headers[name] = headers.words(name)
				if s.Filter.Headers[name] == nil { // null would match no message
					headers.Fail(name, "must have at least one word")
				}
			}
			filter.keep(headers.Finish())
			if len(s.Filter.Headers) == 0 {
				filter.Fail("headers", "must have at least one header")
			}
		}
		if len(s.Filter.Kinds) == 0 && len(s.Filter.Headers) == 0 {
			o.Fail("filter", "must have kind or headers, or both")
		}
		o.keep(filter.Finish())
	}
	return s, o.Finish()
}

// words takes an array of at least one string.
func (o *Object) words(name string) []string {
	given := o.Has(name)
	words := o.Texts(name)
	if given && len(words) == 0 {
		o.Fail(name, "must have at least one word")
	}
	return words
}

// Withdrawal is the result of cancelling or rescheduling a message in one subscription.
type Withdrawal struct {
	Subscription string          `json:"subscription"`
	InTime       bool            `json:"in_time"`
	State        posthaste.State `json:"state"`
	// Requested is absent unless the message runs and its holder is told that it is cancelled.
	Requested bool `json:"requested,omitempty"`
}

// NewWithdrawals converts the results of cancelling or rescheduling a message.
func NewWithdrawals(all []posthaste.Withdrawal) []Withdrawal {
	return each(all, func(w posthaste.Withdrawal) Withdrawal { return Withdrawal(w) })
}

// NotWaiting is the error for a message that could be cancelled, rescheduled or run in no
// subscription.
func NotWaiting(id posthaste.MessageID, all []posthaste.Withdrawal) error {
	states := make([]string, len(all))
	for i, w := range all {
		states[i] = string(w.State) + " in " + w.Subscription
	}
	return &posthaste.Error{
		Code: posthaste.CodeConflict, Field: "id", Message: fmt.Sprintf("message %s was not changed, because it is no longer waiting: it is %s", id, strings.Join(states, ", ")),
		Hint: "GET /v1/messages/" + id.String() + " shows it",
	}
}

// RunResult is the result of running a message now in one subscription.
type RunResult struct {
	Subscription string          `json:"subscription"`
	Due          bool            `json:"due"`
	State        posthaste.State `json:"state"`
	HeldBy       []string        `json:"held_by"`
}

// NewRunResults converts the results of running a message now.
func NewRunResults(all []posthaste.RunResult) []RunResult {
	return each(all, func(r posthaste.RunResult) RunResult {
		r.HeldBy = append([]string{}, r.HeldBy...)
		return RunResult(r)
	})
}

// Purged is the number of messages that a purge cancelled in one subscription.
type Purged struct {
	Subscription string `json:"subscription"`
	Messages     int64  `json:"messages"`
}

// NewPurged converts the result of a purge.
func NewPurged(all []posthaste.Purged) []Purged {
	return each(all, func(p posthaste.Purged) Purged { return Purged(p) })
}

// Finding is one problem, current or imminent.
type Finding struct {
	Check        string `json:"check"`
	Fault        bool   `json:"fault"`
	Message      string `json:"message"`
	Hint         string `json:"hint,omitempty"`
	Queue        string `json:"queue,omitempty"`
	Subscription string `json:"subscription,omitempty"`
}

// NewFinding converts a finding of the doctor, with the hint for an interface.
func NewFinding(f posthaste.Finding, by Interface) Finding {
	f.Hint = translate(f.Hint, by)
	return Finding(f)
}

// NewFindings converts the findings of the doctor, with hints for an interface.
func NewFindings(all []posthaste.Finding, by Interface) []Finding {
	return each(all, func(f posthaste.Finding) Finding { return NewFinding(f, by) })
}

func each[A, B any](all []A, show func(A) B) []B {
	shown := make([]B, len(all))
	for i, a := range all {
		shown[i] = show(a)
	}
	return shown
}
