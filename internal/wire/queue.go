package wire

import (
	"bytes"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var laterQueueOptions = []string{"ordered", "retention", "rate_limit", "concurrency", "mode", "priorities", "dedupe"}

// ParseQueueOptions reads a queue's options: max_attempts, backoff with base
// and max, timeout, max_payload (bytes) and lanes. No bytes at all mean {}.
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
	q.Timeout = positiveDuration(o, "timeout")
	q.MaxPayload = o.Int("max_payload", 1, posthaste.MaxPayloadBytes)
	q.Lanes = o.Int("lanes", 1, 64)
	if backoff := o.Object("backoff"); backoff != nil {
		q.BackoffBase = positiveDuration(backoff, "base")
		q.BackoffMax = positiveDuration(backoff, "max")
		o.keep(backoff.Finish())
	}
	return q, o.Finish(laterQueueOptions...)
}

// positiveDuration refuses an explicit zero: in QueueOptions zero means the
// default, and what was asked for must not silently become something else.
func positiveDuration(o *Object, name string) time.Duration {
	given := o.Has(name)
	d := o.Duration(name)
	if given && d == 0 {
		o.Fail(name, "must be above zero")
	}
	return d
}
