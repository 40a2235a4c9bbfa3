package posthaste

import (
	"context"
	"time"
)

// Tracing traces individual messages from sending to settlement, while [Telemetry] counts
// them. A nil Tracing costs nothing. Its methods are called for every message, must be safe
// for concurrent use, and must not block. Package telemetry/tracing implements it with
// OpenTelemetry; docs/production/monitoring.md describes the spans.
type Tracing interface {
	// Sending is called before messages are sent. It returns the messages to send instead,
	// with the headers that carry the trace, and a function to call once with the result.
	// It does not modify the messages given. It continues the trace in a message's own
	// headers, or else that of ctx.
	Sending(ctx context.Context, messages []Message) (context.Context, []Message, func(sent []Sent, err error))
	// Handling is called before a call of a handler or sink. It returns the context for
	// that call and one Trace for each delivery, in order: nil for a delivery that is not
	// traced, and no slice if none is.
	Handling(ctx context.Context, deliveries []RawDelivery) (context.Context, []Trace)
	// Settling is called before settling deliveries that were handled elsewhere, for
	// example by a client of the HTTP API, whose request headers are given. It returns a
	// function to call once with the result.
	Settling(ctx context.Context, headers map[string]string, settlements []Settlement) func(results []SettleResult, err error)
}

// Trace traces one delivery in a handler.
type Trace interface {
	// Handled is called once, when the handler has returned err.
	Handled(err error)
	// Settled is called at most once, after Handled, with the result of a settlement that
	// was sent at began: the recorded outcome, or an error, or neither if the delivery was
	// no longer held and the message may have been handled twice.
	Settled(began time.Time, became Outcome, err error)
}

// The message headers that carry a trace (W3C Trace Context).
const (
	HeaderTraceParent = "traceparent"
	HeaderTraceState  = "tracestate"
)
