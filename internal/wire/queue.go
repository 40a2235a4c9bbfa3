package wire

import (
	"bytes"

	"github.com/posthaste-mq/posthaste"
)

// ParseQueueOptions reads the options of a queue: max_attempts, backoff with base and max,
// timeout, max_payload (bytes), lanes, mode, retention and retain_payload, ordered, on_dead,
// fair, and those of [ParseQueueLimits]. Empty input means {}.
func ParseQueueOptions(data []byte) (posthaste.QueueOptions, error) {
	var q posthaste.QueueOptions
	if len(bytes.TrimSpace(data)) == 0 {
		return q, nil
	}
	o, err := ParseObject("", data)
	if err != nil {
		return q, err
	}
	q.MaxAttempts = o.Int("max_attempts", 1, 1000)
	q.Timeout = o.positiveDuration("timeout")
	q.MaxPayload = o.Int("max_payload", 1, posthaste.MaxPayloadBytes)
	q.Lanes = o.Int("lanes", 1, 64)
	switch q.Mode = posthaste.Mode(o.Text("mode")); q.Mode {
	case "", posthaste.AtLeastOnce, posthaste.AtMostOnce:
	default:
		o.Fail("mode", "must be %s or %s, got %q", posthaste.AtLeastOnce, posthaste.AtMostOnce, q.Mode)
	}
	q.Retention = o.positiveDuration("retention")
	q.RetainPayload = o.Bool("retain_payload", false)
	q.Ordered = o.Bool("ordered", false)
	switch on := o.Text("on_dead"); on {
	case "", "continue":
	case "stop":
		q.StopOnDead = true
	default:
		o.Fail("on_dead", "must be continue or stop, got %q", on)
	}
	q.Fair = o.Bool("fair", false)
	q.Limits = queueLimits(o)
	if backoff := o.Object("backoff"); backoff != nil {
		q.BackoffBase = backoff.positiveDuration("base")
		q.BackoffMax = backoff.positiveDuration("max")
		o.keep(backoff.Finish())
	}
	return q, o.Finish()
}

// ParseQueueLimits reads the limits of a queue: concurrency and key_concurrency, rate_limit
// and key_rate_limit with limit, per and burst.
func ParseQueueLimits(data []byte) (posthaste.QueueLimits, error) {
	o, err := ParseObject("", data)
	if err != nil {
		return posthaste.QueueLimits{}, err
	}
	return queueLimits(o), o.Finish()
}

func queueLimits(o *Object) posthaste.QueueLimits {
	return posthaste.QueueLimits{
		Concurrency: o.Int("concurrency", 1, 100_000), RateLimit: rate(o, "rate_limit"),
		KeyConcurrency: o.Int("key_concurrency", 1, 100_000), KeyRateLimit: rate(o, "key_rate_limit"),
	}
}

func rate(o *Object, name string) (r posthaste.Rate) {
	given := o.Object(name)
	if given == nil {
		return r
	}
	r.Limit = given.Int("limit", 1, 1_000_000_000)
	r.Per = given.positiveDuration("per")
	r.Burst = given.Int("burst", 1, 1_000_000)
	if r.Limit == 0 {
		given.Fail("limit", "is required: the number of messages per period")
	}
	o.keep(given.Finish())
	return r
}
