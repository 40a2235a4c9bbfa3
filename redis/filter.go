package redis

import (
	"cmp"
	"maps"
	"slices"

	"github.com/posthaste-mq/posthaste"
)

// filter is a filter in the form that fill.lua reads.
type filter struct {
	Kinds   []string            `codec:"k,omitempty"`
	Headers map[string][]string `codec:"h,omitempty"`
}

// passes reports whether a filter accepts a message. fill.lua has the same rule.
func passes(f *posthaste.Filter, m *posthaste.Message) bool {
	if len(f.Kinds) > 0 && !slices.Contains(f.Kinds, m.Kind) {
		return false
	}
	for name, words := range f.Headers {
		if word, ok := m.Headers[name]; !ok || !slices.Contains(words, word) {
			return false
		}
	}
	return true
}

// excluded returns the letters of the further subscriptions whose filters reject m.
func (q *queue) excluded(m *posthaste.Message) (letters string) {
	for _, s := range q.subs {
		if !passes(&s.wanted.Filter, m) {
			letters += s.letter
		}
	}
	return letters
}

// checkSubscription checks options, and normalizes them so that they can be compared.
func checkSubscription(o *posthaste.SubscriptionOptions) error {
	o.From = cmp.Or(o.From, posthaste.FromNow)
	switch {
	case o.From != posthaste.FromNow && o.From != posthaste.FromOldest:
		return posthaste.Invalidf("from", "from must be %s or %s, got %q", posthaste.FromNow, posthaste.FromOldest, o.From)
	case o.Scheduled && o.From == posthaste.FromOldest:
		return posthaste.Invalidf("scheduled", "from %[1]s and scheduled exclude each other: %[1]s includes scheduled messages", posthaste.FromOldest)
	case o.MaxLag < 0:
		return posthaste.Invalidf("max_lag", "max_lag must be above zero")
	case o.MaxLag > 0:
		return &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "max_lag", Message: "the Redis engine skips nothing for a subscription that lags: its unsettled messages stay in memory",
			Hint: "leave max_lag out; watch the subscription's oldest age, and unsubscribe it if it has no readers"}
	}
	if slices.Contains(o.Filter.Kinds, "") {
		return posthaste.Invalidf("filter", "the filter needs a word or a list of words for kind, and has an empty word, which no message has")
	}
	sorted := func(words []string) []string { return slices.Compact(slices.Sorted(slices.Values(words))) }
	o.Filter.Kinds = sorted(o.Filter.Kinds)
	o.Filter.Headers = maps.Clone(o.Filter.Headers)
	for name, words := range o.Filter.Headers {
		if len(words) == 0 {
			return posthaste.Invalidf("filter", "the filter needs a word or a list of words for header %s, and has none", name)
		}
		if name == "traceparent" {
			return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "filter", Message: "a filter cannot use the header traceparent, which differs in every trace",
				Hint: "send messages with another header to filter by"}
		}
		o.Filter.Headers[name] = sorted(words)
	}
	if len(o.Filter.Headers) == 0 {
		o.Filter.Headers = nil
	}
	return nil
}

// detailsOf returns the options of a new subscription for its recorded action.
func detailsOf(name string, o posthaste.SubscriptionOptions) map[string]any {
	details := map[string]any{"subscription": name}
	if o.From != posthaste.FromNow {
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
