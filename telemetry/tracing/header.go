package tracing

import (
	"context"
	"encoding/hex"
	"reflect"

	"go.opentelemetry.io/otel/trace"

	"github.com/posthaste-mq/posthaste"
)

// unsampled returns the span that the headers name, if they say that its trace is not sampled.
// Most messages have such headers, so they are parsed here at low cost. For all other headers,
// and for invalid ones, the result is not valid and the propagator parses them.
func unsampled(headers map[string]string) (other trace.SpanContext) {
	// 00-<trace, 32>-<span, 16>-<flags, 2>
	h := headers[posthaste.HeaderTraceParent]
	if len(h) != 55 || h[:3] != "00-" || h[35] != '-' || h[52:54] != "-0" || h[54] != '0' && h[54] != '2' {
		return other
	}
	id, err := trace.TraceIDFromHex(h[3:35])
	if err != nil {
		return other
	}
	span, err := trace.SpanIDFromHex(h[36:52])
	if err != nil {
		return other
	}
	c := trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: trace.TraceFlags(h[54] - '0'), Remote: true}
	if len(headers) > 1 {
		// The standard says that an invalid tracestate does not invalidate the traceparent.
		c.TraceState, _ = trace.ParseTraceState(headers[posthaste.HeaderTraceState])
	}
	return trace.NewSpanContext(c)
}

// parentOf returns the traceparent of a span.
func parentOf(sc trace.SpanContext) string {
	id, span, flags := sc.TraceID(), sc.SpanID(), sc.TraceFlags()&(trace.FlagsSampled|trace.FlagsRandom)
	var b [55]byte
	h := hex.AppendEncode(append(b[:0], "00-"...), id[:])
	h = hex.AppendEncode(append(h, '-'), span[:])
	h = hex.AppendEncode(append(h, '-'), []byte{byte(flags)})
	return string(h)
}

// carried is a context that continues a trace that is not sampled. Messages sent together
// belong to one trace, and their deliveries share one context.
type carried struct {
	from, ctx context.Context
	parent    string
}

// carry returns a context that continues the trace in the headers, if it is not sampled.
func (t *Tracing) carry(ctx context.Context, headers map[string]string) (context.Context, bool) {
	// Only a pointer is always comparable.
	alone := len(headers) == 1 && reflect.TypeOf(ctx).Kind() == reflect.Pointer
	parent := headers[posthaste.HeaderTraceParent]
	if last := t.last.Load(); alone && last != nil && last.parent == parent && last.from == ctx {
		return last.ctx, true
	}
	sc := unsampled(headers)
	if !sc.IsValid() {
		return ctx, false
	}
	inner := trace.ContextWithSpanContext(ctx, sc)
	// Keep a context if messages of one trace arrive together. For a single message keeping it
	// is waste.
	if alone && t.missed.Add(1)%8 == 0 {
		t.last.Store(&carried{from: ctx, ctx: inner, parent: parent})
	}
	return inner, true
}
