package redis

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

// limits are a queue's as its scripts have them (scripts/limits.lua).
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

// rateOf checks a rate and fills it in; nil if there is none.
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
			r.Burst = max(2, r.Burst) // or whoever comes a moment late for one would come late for all that follow
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

// packed is what scripts get, "" if there are none.
func (l limits) packed() string {
	if l == (limits{}) {
		return ""
	}
	return packed(l)
}

func (l limits) public() posthaste.QueueLimits {
	return posthaste.QueueLimits{Concurrency: l.Concurrency, RateLimit: l.Rate.public(), KeyConcurrency: l.KeyConcurrency, KeyRateLimit: l.KeyRate.public()}
}

// QueueLimit implements [posthaste.Admin]. What was handed out before counts.
func (e *Engine) QueueLimit(ctx context.Context, by, name string, wanted posthaste.QueueLimits) error {
	q, err := e.queue(ctx, name)
	if err != nil {
		return err
	}
	l, err := limitsOf(q.options, wanted)
	if err != nil {
		return err
	}
	if q.looks == 0 && (l.KeyConcurrency > 0 || l.KeyRate != nil) {
		return &posthaste.Error{Code: posthaste.Unsupported, Field: "limits", Message: "queue " + quote.Name(name) + " was made to not look at keys, and cannot get limits for each", Hint: "make another queue"}
	}
	if _, _, err = e.together(ctx, limitScript, name, l.packed()); err != nil {
		return writeError(err)
	}
	is := map[string]any{}
	for name, n := range map[string]int{"concurrency": wanted.Concurrency, "key_concurrency": wanted.KeyConcurrency} {
		if n != 0 {
			is[name] = n
		}
	}
	for name, r := range map[string]posthaste.Rate{"rate_limit": wanted.RateLimit, "key_rate_limit": wanted.KeyRateLimit} {
		if !r.IsZero() {
			is[name] = r.String()
		}
	}
	details, err := json.Marshal(is)
	if err != nil {
		return err
	}
	return writeError(e.record(ctx, record{By: by, Action: "limit", Queue: name, Details: details}))
}

// KeyPause implements [posthaste.Admin].
func (e *Engine) KeyPause(ctx context.Context, by, name, key string) error {
	return e.pauseKey(ctx, by, name, key, "pause_key", "1")
}

// KeyResume implements [posthaste.Admin].
func (e *Engine) KeyResume(ctx context.Context, by, name, key string) error {
	return e.pauseKey(ctx, by, name, key, "resume_key", "")
}

func (e *Engine) pauseKey(ctx context.Context, by, name, key, action, paused string) error {
	q, err := e.queue(ctx, name)
	if err != nil {
		return err
	}
	if key == "" {
		return posthaste.Invalidf("key", "the key must not be empty")
	}
	if err := (&posthaste.Message{Queue: name, Key: key}).Check(); err != nil {
		return err
	}
	if q.looks == 0 {
		return &posthaste.Error{Code: posthaste.Unsupported, Field: "key", Message: "queue " + quote.Name(name) + " does not look at keys, so none can be paused",
			Hint: "pause the queue, or make one that is ordered, fair, or has a limit for each key"}
	}
	reply, _, err := e.together(ctx, keyScript, name, key, paused)
	if err != nil || reply != int64(1) {
		return writeError(err)
	}
	details, err := json.Marshal(map[string]string{"key": key})
	if err != nil {
		return err
	}
	return writeError(e.record(ctx, record{By: by, Action: action, Queue: name, Details: details}))
}
