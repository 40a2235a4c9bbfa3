package redis

import (
	"cmp"
	"math"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// rules are the options that scripts need, with the names of rules.lua.
type rules struct {
	MaxAttempts   int    `codec:"n"`
	BackoffBase   int64  `codec:"b"`
	BackoffMax    int64  `codec:"m"`
	Keep          int    `codec:"k"`
	Retention     int64  `codec:"r"`
	RetainPayload bool   `codec:"p"`
	Looks         bool   `codec:"y,omitempty"`
	Ordered       bool   `codec:"o,omitempty"`
	StopOnDead    bool   `codec:"x,omitempty"`
	Fair          bool   `codec:"f,omitempty"`
	Letter        string `codec:"h,omitempty"`
	Version       string `codec:"v,omitempty"`
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

// rateOf checks a rate and fills in its defaults. It returns nil for the zero rate.
func rateOf(field string, r posthaste.Rate) (*rate, error) {
	if r.IsZero() {
		return nil, nil
	}
	if r.Per == 0 {
		r.Per = time.Second
	}
	switch {
	case r.Limit < 1 || r.Limit > 1e9:
		return nil, posthaste.Invalidf(field, "%s: limit must be 1 to 1,000,000,000, got %d", field, r.Limit)
	case r.Per < time.Millisecond || r.Per > 366*24*time.Hour:
		return nil, posthaste.Invalidf(field, "%s: per must be 1 millisecond to 366 days, got %s", field, r.Per)
	case r.Burst < 0 || r.Burst > 1e6:
		return nil, posthaste.Invalidf(field, "%s: burst must be 1 to 1,000,000, got %d", field, r.Burst)
	case r.Burst == 0:
		perSecond := float64(r.Limit) / r.Per.Seconds()
		r.Burst = max(1, int(math.Ceil(perSecond/10)))
		if perSecond > 1 {
			r.Burst = max(2, r.Burst) // with a burst of 1, one late claim delays all later ones
		}
	}
	return &rate{Limit: r.Limit, Per: r.Per.Microseconds(), Burst: r.Burst}, nil
}

func (r *rate) perSecond() float64 { return float64(r.Limit) / float64(r.Per) * 1e6 }

func (r *rate) public() posthaste.Rate {
	if r == nil {
		return posthaste.Rate{}
	}
	return posthaste.Rate{Limit: r.Limit, Per: fromMicros(r.Per), Burst: r.Burst}
}

// limitsOf checks limits of a queue with these options.
func limitsOf(o posthaste.QueueOptions, l posthaste.QueueLimits) (all limits, err error) {
	all.Concurrency, all.KeyConcurrency = l.Concurrency, l.KeyConcurrency
	if all.Rate, err = rateOf("rate_limit", l.RateLimit); err != nil {
		return all, err
	}
	if all.KeyRate, err = rateOf("key_rate_limit", l.KeyRateLimit); err != nil {
		return all, err
	}
	const most = 100_000
	once := o.Mode == posthaste.AtMostOnce
	switch {
	case l.Concurrency < 0 || l.Concurrency > most:
		return all, posthaste.Invalidf("concurrency", "concurrency must be 1 to %d, got %d", most, l.Concurrency)
	case l.KeyConcurrency < 0 || l.KeyConcurrency > most:
		return all, posthaste.Invalidf("key_concurrency", "key_concurrency must be 1 to %d, got %d", most, l.KeyConcurrency)
	case o.Ordered && l.KeyConcurrency > 0:
		return all, posthaste.Invalidf("key_concurrency", "ordered and key_concurrency exclude each other: of an ordered key one message runs at a time")
	case once && l.Concurrency > 0:
		return all, posthaste.Invalidf("concurrency", "a queue that hands out at most once has no concurrency: what it handed out is settled with that; rate_limit bounds it")
	case once && l.KeyConcurrency > 0:
		return all, posthaste.Invalidf("mode", "a queue that hands out at most once cannot have a key_concurrency: it never learns when a message has ended")
	case l.Concurrency > 0 && l.KeyConcurrency > l.Concurrency:
		return all, posthaste.Invalidf("key_concurrency", "key_concurrency (%d) is above concurrency (%d), so that it bounds nothing", l.KeyConcurrency, l.Concurrency)
	case all.Rate != nil && all.KeyRate != nil && all.KeyRate.perSecond() > all.Rate.perSecond():
		return all, posthaste.Invalidf("key_rate_limit", "key_rate_limit (%s) is above rate_limit (%s), so that it bounds nothing", l.KeyRateLimit, l.RateLimit)
	}
	return all, nil
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

// orLimits returns the limits asked for, completed by those that the queue has.
func orLimits(asked, have posthaste.QueueLimits) posthaste.QueueLimits {
	return posthaste.QueueLimits{
		Concurrency: cmp.Or(asked.Concurrency, have.Concurrency), RateLimit: cmp.Or(asked.RateLimit, have.RateLimit),
		KeyConcurrency: cmp.Or(asked.KeyConcurrency, have.KeyConcurrency), KeyRateLimit: cmp.Or(asked.KeyRateLimit, have.KeyRateLimit),
	}
}

func checkOptions(o *posthaste.QueueOptions) error {
	switch {
	case o.StopOnDead && !o.Ordered:
		return posthaste.Invalidf("on_dead", "a dead message can stop its key in ordered queues: in others no message waits for another")
	case o.Ordered && o.Fair:
		return posthaste.Invalidf("fair", "ordered and fair exclude each other: keys of an ordered queue take turns anyway")
	case o.Ordered && o.Mode == posthaste.AtMostOnce:
		return posthaste.Invalidf("mode", "a queue that hands out at most once cannot be ordered: it never learns when a message has ended, so it cannot start the next of its key then")
	case o.Mode == posthaste.AtMostOnce && (o.MaxAttempts != 0 || o.BackoffBase != 0 || o.BackoffMax != 0):
		return posthaste.Invalidf("max_attempts", "a queue that hands out at most once never tries again")
	}
	o.Mode = cmp.Or(o.Mode, posthaste.AtLeastOnce)
	o.MaxAttempts = cmp.Or(o.MaxAttempts, 20)
	o.BackoffBase = cmp.Or(o.BackoffBase, time.Second)
	o.BackoffMax = cmp.Or(o.BackoffMax, time.Hour)
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.MaxPayload = cmp.Or(o.MaxPayload, 1<<20)
	o.Lanes = cmp.Or(o.Lanes, 1)
	for _, c := range []struct {
		field string
		ok    bool
		want  string
	}{
		{"max_attempts", o.MaxAttempts >= 1 && o.MaxAttempts <= 1000, "1 to 1,000"},
		{"backoff", o.BackoffBase > 0 && o.BackoffMax >= o.BackoffBase && o.BackoffMax <= 365*24*time.Hour, "above zero, its bound not below its base and at most 365 days"},
		{"timeout", o.Timeout > 0 && o.Timeout <= 365*24*time.Hour, "above zero and at most 365 days"},
		{"max_payload", o.MaxPayload > 0 && o.MaxPayload <= posthaste.MaxPayloadBytes, "1 byte to 32 MiB"},
		{"lanes", o.Lanes >= 1 && o.Lanes <= 64, "1 to 64"},
		{"mode", o.Mode == posthaste.AtLeastOnce || o.Mode == posthaste.AtMostOnce, "at_least_once or at_most_once"},
		{"retention", o.Retention >= 0 && o.Retention <= 36500*24*time.Hour, "0 to 36,500 days"},
		{"retain_payload", !o.RetainPayload || o.Retention > 0, "off unless retention is above zero"},
	} {
		if !c.ok {
			return posthaste.Invalidf(c.field, "%s must be %s", c.field, c.want)
		}
	}
	_, err := limitsOf(*o, o.Limits)
	return err
}
