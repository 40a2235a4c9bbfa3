package redis

import (
	"github.com/posthaste-mq/posthaste"
)

// filter is a filter in the form that fill.lua reads.
type filter struct {
	Kinds   []string            `codec:"k,omitempty"`
	Headers map[string][]string `codec:"h,omitempty"`
}

// excluded returns the letters of the further subscriptions whose filters reject m.
func (q *queue) excluded(m *posthaste.Message) (letters string) {
	for _, s := range q.subs {
		if !s.wanted.Filter.Passes(m.Kind, m.Headers) {
			letters += s.letter
		}
	}
	return letters
}

// checkSubscription checks options, and normalizes them so that they can be compared.
func checkSubscription(o *posthaste.SubscriptionOptions) error {
	if err := o.Complete(); err != nil {
		return err
	}
	if o.MaxLag > 0 {
		return &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "max_lag", Message: "the Redis engine skips nothing for a subscription that lags: its unsettled messages stay in memory",
			Hint: "leave max_lag out; watch the subscription's oldest age, and unsubscribe it if it has no readers"}
	}
	return nil
}
