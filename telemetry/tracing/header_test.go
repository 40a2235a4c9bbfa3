package tracing

import (
	"context"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/posthaste-mq/posthaste"
)

// Deliveries of one trace may share a context, but never with deliveries of another trace, of
// another state, or of another call's context.
func TestContextsOfUnsampledTracesAreTheirOwn(t *testing.T) {
	type key struct{}
	tracing := New(sdk.NewTracerProvider())
	const (
		one = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
		two = "00-4bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b7-00"
	)
	mine := context.WithValue(context.Background(), key{}, "mine")
	yours := context.WithValue(context.Background(), key{}, "yours")
	for range 20 { // because not every context is kept
		for _, of := range []struct {
			from         context.Context
			whose        any
			trace, state string
		}{
			{mine, "mine", one, ""}, {mine, "mine", one, ""}, {mine, "mine", two, ""}, {mine, "mine", one, "a=b"}, {yours, "yours", one, ""},
			{yours, "yours", one, ""}, {mine, "mine", one, ""}, {context.Background(), nil, one, ""}, {yours, "yours", one, "c=d"},
		} {
			headers := map[string]string{posthaste.HeaderTraceParent: of.trace}
			if of.state != "" {
				headers[posthaste.HeaderTraceState] = of.state
			}
			inner, traces := tracing.Handling(of.from, []posthaste.RawDelivery{{Headers: headers}})
			sc := trace.SpanContextFromContext(inner)
			if got := parentOf(sc); got != of.trace || sc.TraceState().String() != of.state || inner.Value(key{}) != of.whose || traces != nil {
				t.Fatalf("%v: the context is of %v, trace %s %s", of, inner.Value(key{}), got, sc.TraceState())
			}
		}
	}
}
