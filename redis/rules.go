package redis

import (
	"math"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// rules are the options that scripts need, with the names of rules.lua.
type rules struct {
	MaxAttempts   int                       `codec:"n"`
	BackoffBase   int64                     `codec:"b"`
	BackoffMax    int64                     `codec:"m"`
	Keep          int                       `codec:"k"`
	Retention     int64                     `codec:"r"`
	RetainPayload bool                      `codec:"p"`
	MaxAge        int64                     `codec:"a,omitempty"` // rounded up, because 0 means any age
	Looks         bool                      `codec:"y,omitempty"`
	Ordered       bool                      `codec:"o,omitempty"`
	StopOnDead    bool                      `codec:"x,omitempty"`
	Fair          bool                      `codec:"f,omitempty"`
	Stopped       bool                      `codec:"z,omitempty"`
	Kinds         map[string]attemptOptions `codec:"i,omitempty"`
	Paused        map[string]bool           `codec:"q,omitempty"`
	Letter        string                    `codec:"h,omitempty"`
	Revision      string                    `codec:"w,omitempty"`
	Version       string                    `codec:"v,omitempty"`
}

// optionsOfKinds returns the options of kinds for scripts, nil if there are none: scripts look up
// the kind of each message while there are some, and the encoder does not omit empty maps.
func optionsOfKinds(o posthaste.QueueOptions) map[string]attemptOptions {
	if len(o.Kinds) == 0 {
		return nil
	}
	all := map[string]attemptOptions{}
	for kind, k := range o.Kinds {
		all[kind] = attemptOptionsOf(&posthaste.Message{MaxAttempts: k.MaxAttempts, Timeout: k.Timeout, Backoff: k.Backoff})
	}
	return all
}

// setOf returns texts as the keys of a map, nil if there are none, as [optionsOfKinds] does.
func setOf(texts []string) map[string]bool {
	if len(texts) == 0 {
		return nil
	}
	set := map[string]bool{}
	for _, t := range texts {
		set[t] = true
	}
	return set
}

// looks returns 0 if a queue ignores keys, 1 if it has limits per key, 2 if it is ordered and
// 3 if it is fair.
func looks(o posthaste.QueueOptions) int {
	switch {
	case o.Ordered:
		return 2
	case o.Fair:
		return 3
	case o.Limits.KeyConcurrency > 0 || !o.Limits.KeyRateLimit.IsZero():
		return 1
	}
	return 0
}

// limits are the limits of a queue in the form of scripts/limits.lua.
type limits struct {
	Concurrency    int   `codec:"c,omitempty"`
	Rate           *rate `codec:"r,omitempty"`
	KeyConcurrency int   `codec:"k,omitempty"`
	KeyRate        *rate `codec:"s,omitempty"`
}

type rate struct {
	Limit int   `codec:"l"`
	Per   int64 `codec:"p"` // µs
	Burst int   `codec:"b"`
}

// rateOf returns a rate with its defaults, or nil for the zero rate.
func rateOf(r posthaste.Rate) *rate {
	if r.IsZero() {
		return nil
	}
	if r.Per == 0 {
		r.Per = time.Second
	}
	if r.Burst == 0 {
		perSecond := float64(r.Limit) / r.Per.Seconds()
		r.Burst = max(1, int(math.Ceil(perSecond/10)))
		if perSecond > 1 {
			r.Burst = max(2, r.Burst) // with a burst of 1, one late claim delays all later ones
		}
	}
	return &rate{Limit: r.Limit, Per: r.Per.Microseconds(), Burst: r.Burst}
}

func (r *rate) public() posthaste.Rate {
	if r == nil {
		return posthaste.Rate{}
	}
	return posthaste.Rate{Limit: r.Limit, Per: fromMicros(r.Per), Burst: r.Burst}
}

// limitsOf converts limits.
func limitsOf(l posthaste.QueueLimits) limits {
	return limits{Concurrency: l.Concurrency, Rate: rateOf(l.RateLimit), KeyConcurrency: l.KeyConcurrency, KeyRate: rateOf(l.KeyRateLimit)}
}

// packed encodes limits for scripts, "" if there are none.
func (l limits) packed() string {
	if l == (limits{}) {
		return ""
	}
	return packed(l)
}

func (l limits) public() posthaste.QueueLimits {
	return posthaste.QueueLimits{Concurrency: l.Concurrency, RateLimit: l.Rate.public(), KeyConcurrency: l.KeyConcurrency, KeyRateLimit: l.KeyRate.public()}
}
