package tracing

import (
	"encoding/hex"

	"go.opentelemetry.io/otel/trace"

	"github.com/posthaste-mq/posthaste"
)

// unsampled returns the span that headers name where they say that its trace is
// not sampled, as those of most messages do: so they are read here, at little
// cost. What it returns for all others, and for what it cannot read, is not valid;
// those are for the propagator.
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
		// One that cannot be read does no harm to the rest, says the standard.
		c.TraceState, _ = trace.ParseTraceState(headers[posthaste.HeaderTraceState])
	}
	return trace.NewSpanContext(c)
}

// parentOf returns the traceparent that names a span.
func parentOf(sc trace.SpanContext) string {
	id, span, flags := sc.TraceID(), sc.SpanID(), sc.TraceFlags()&(trace.FlagsSampled|trace.FlagsRandom)
	h := make([]byte, 0, 55)
	h = hex.AppendEncode(append(h, "00-"...), id[:])
	h = hex.AppendEncode(append(h, '-'), span[:])
	h = hex.AppendEncode(append(h, '-'), []byte{byte(flags)})
	return string(h)
}
