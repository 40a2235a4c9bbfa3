package posthaste

import (
	"context"
	"time"
)

// Tracing follows single messages from their sender to their settling, where
// [Telemetry] counts them. A nil Tracing follows nothing and costs nothing.
// Its methods are safe for concurrent use, are called on the way of every
// message, and must not block. Package telemetry/tracing is the one for
// OpenTelemetry; docs/telemetry.md tells how spans hang together.
type Tracing interface {
	// Sending is called before messages are sent. It returns the messages to
	// send in their place, with the headers by which their handlers find the
	// trace, and what is called once with the result. It never changes the
	// messages that it was given. The trace that is continued is the one that a
	// message's own headers name, and else ctx's.
	Sending(ctx context.Context, messages []Message) (context.Context, []Message, func(ids []MessageID, err error))
	// Handling is called before a handler or sink gets deliveries in one call.
	// It returns the context for that call, and one Trace for each delivery, in
	// order: nil for one that is not followed, and none at all where none is.
	Handling(ctx context.Context, deliveries []RawDelivery) (context.Context, []Trace)
	// Settling is called before deliveries are settled that were handled
	// elsewhere, such as by a caller of the HTTP API; headers are what that
	// caller sent along. It returns what is called once with the result.
	Settling(ctx context.Context, headers map[string]string, settlements []Settlement) func(results []SettleResult, err error)
}

// Trace follows one delivery that a handler has.
type Trace interface {
	// Handled is called once, when the handler has returned err.
	Handled(err error)
	// Settled is called at most once and after Handled, when the store has
	// answered a settlement that was sent at began: with what the delivery
	// became, or with an error, or with neither if it was no longer ours and the
	// message may have been handled twice.
	Settled(began time.Time, became Outcome, err error)
}

// The headers of a message by which a trace goes on (W3C Trace Context).
const (
	HeaderTraceParent = "traceparent"
	HeaderTraceState  = "tracestate"
)
