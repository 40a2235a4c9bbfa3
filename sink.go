package posthaste

import (
	"context"
	"encoding/json"
)

// Sink delivers messages to an external system. Package sinktest has the tests that every
// sink must pass.
type Sink interface {
	// Deliver delivers a batch and returns exactly one result for each delivery, in order.
	// It must return soon after ctx ends, and must report success only for deliveries that
	// the external system has confirmed. It is safe for concurrent use.
	Deliver(ctx context.Context, batch []RawDelivery) []SinkResult
	// Close releases connections.
	Close() error
}

// SinkResult is the result of one delivery of a batch.
type SinkResult struct {
	// Err is nil if the message was delivered. [Permanent] fails it for good, [RetryAfter]
	// sets the time of the next attempt, and any other error is retried with backoff.
	Err error
	// Receipt is JSON to record with the outcome, also of a failed attempt. The next
	// attempt finds it in the message's history.
	Receipt json.RawMessage
	// Terms are words by which the message can be found, as [Settlement.Terms].
	Terms []string
}
