package posthaste

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// KindOptions are options of the attempts of one kind of messages. A message's own options take
// precedence over those of its kind, and these over those of its queue. Zero values mean the
// queue's values. Queues with [AtMostOnce] accept only Timeout.
type KindOptions struct {
	// MaxAttempts is how often a message is tried, at most 1,000.
	MaxAttempts int
	// Timeout is the maximum duration of one run of a handler, at most 365 days.
	Timeout time.Duration
	// Backoff bounds the waits before further attempts.
	Backoff Backoff
}

// Backoff bounds the waits between attempts. Full jitter applies.
type Backoff struct {
	// Base is the upper bound of the wait before the second attempt. Each further attempt
	// doubles it.
	Base time.Duration
	// Max is the upper bound of all waits, at most 365 days, and not below Base.
	Max time.Duration
}

// MaxKinds is the maximum number of kinds that can have options in a queue, and that can be
// paused in it.
const MaxKinds = 100

// String returns the options in the form of the command line, "none" if there are none.
func (k KindOptions) String() string {
	var parts []string
	if k.MaxAttempts != 0 {
		parts = append(parts, fmt.Sprint("max_attempts=", k.MaxAttempts))
	}
	for _, d := range []struct {
		name string
		is   time.Duration
	}{{"timeout", k.Timeout}, {"backoff.base", k.Backoff.Base}, {"backoff.max", k.Backoff.Max}} {
		if d.is != 0 {
			parts = append(parts, d.name+"="+d.is.String())
		}
	}
	return cmp.Or(strings.Join(parts, ","), "none")
}

// object returns the options as the object that SQL and HTTP use.
func (k KindOptions) object(duration func(time.Duration) any) map[string]any {
	object := map[string]any{}
	if k.MaxAttempts != 0 {
		object["max_attempts"] = k.MaxAttempts
	}
	if k.Timeout != 0 {
		object["timeout"] = duration(k.Timeout)
	}
	if k.Backoff != (Backoff{}) {
		backoff := map[string]any{}
		if k.Backoff.Base != 0 {
			backoff["base"] = duration(k.Backoff.Base)
		}
		if k.Backoff.Max != 0 {
			backoff["max"] = duration(k.Backoff.Max)
		}
		object["backoff"] = backoff
	}
	return object
}

// kindsText returns the options of kinds as a text of one line.
func kindsText(kinds map[string]KindOptions) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		parts = append(parts, kind+":"+kinds[kind].String())
	}
	return strings.Join(parts, " ")
}

// withKinds returns the options of kinds after the named ones were changed. Those without
// options are removed. It returns nil if none are left.
func withKinds(has, named map[string]KindOptions) map[string]KindOptions {
	is := maps.Clone(has)
	for kind, o := range named {
		if is == nil {
			is = map[string]KindOptions{}
		}
		is[kind] = o
	}
	maps.DeleteFunc(is, func(_ string, o KindOptions) bool { return o == KindOptions{} })
	if len(is) == 0 {
		return nil
	}
	return is
}
