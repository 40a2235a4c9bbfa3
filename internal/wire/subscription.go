package wire

import (
	"bytes"

	"github.com/posthaste-mq/posthaste"
)

// ParseSubscriptionOptions reads a subscription's options: from, scheduled,
// filter (kind, headers; each one word or several) and max_lag. No bytes at all
// mean {}.
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
	s.MaxLag = positiveDuration(o, "max_lag")
	if filter := o.Object("filter"); filter != nil {
		s.Filter.Kinds = filter.words("kind")
		if headers := filter.Object("headers"); headers != nil {
			s.Filter.Headers = map[string][]string{}
			for _, name := range headers.order {
				s.Filter.Headers[name] = headers.words(name)
				if s.Filter.Headers[name] == nil { // null, by which nothing would pass
					headers.Fail(name, "must hold a word")
				}
			}
			filter.keep(headers.Finish())
			if len(s.Filter.Headers) == 0 {
				filter.Fail("headers", "must name a header")
			}
		}
		if len(s.Filter.Kinds) == 0 && len(s.Filter.Headers) == 0 {
			o.Fail("filter", "must have kind or headers")
		}
		o.keep(filter.Finish())
	}
	return s, o.Finish()
}

// words takes a string or an array of at least one.
func (o *Object) words(name string) []string {
	if raw := o.fields[name]; raw != nil && bytes.HasPrefix(bytes.TrimSpace(raw), []byte(`"`)) {
		return []string{o.Text(name)}
	}
	given := o.Has(name)
	words := o.Texts(name)
	if given && len(words) == 0 {
		o.Fail(name, "must hold a word")
	}
	return words
}

// Withdrawal tells for one subscription whether a message was taken back.
type Withdrawal struct {
	Subscription string          `json:"subscription"`
	InTime       bool            `json:"in_time"`
	State        posthaste.State `json:"state"`
}

// NewWithdrawals shows what became of a message that was to be taken back.
func NewWithdrawals(all []posthaste.Withdrawal) []Withdrawal {
	return each(all, func(w posthaste.Withdrawal) Withdrawal { return Withdrawal(w) })
}

// Purged tells how many messages were taken back from one subscription.
type Purged struct {
	Subscription string `json:"subscription"`
	Messages     int64  `json:"messages"`
}

// NewPurged shows what a purge took back.
func NewPurged(all []posthaste.Purged) []Purged {
	return each(all, func(p posthaste.Purged) Purged { return Purged(p) })
}

// Finding is one thing that is wrong, or soon will be.
type Finding struct {
	Check        string `json:"check"`
	Fault        bool   `json:"fault"`
	Message      string `json:"message"`
	Hint         string `json:"hint,omitempty"`
	Queue        string `json:"queue,omitempty"`
	Subscription string `json:"subscription,omitempty"`
}

// NewFindings shows what the doctor found.
func NewFindings(all []posthaste.Finding) []Finding {
	return each(all, func(f posthaste.Finding) Finding { return Finding(f) })
}

func each[A, B any](all []A, show func(A) B) []B {
	shown := make([]B, len(all))
	for i, a := range all {
		shown[i] = show(a)
	}
	return shown
}
