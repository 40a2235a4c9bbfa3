package tracing_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/telemetry/tracing"
)

const (
	traceID   = "0af7651916cd43dd8448eb211c80319c"
	unsampled = "00-" + traceID + "-b7ad6b7169203331-00"
	sampled   = "00-" + traceID + "-b7ad6b7169203331-01"
)

// newTracing returns a Tracing whose sampler samples every trace.
func newTracing(t *testing.T, options ...sdk.TracerProviderOption) (*tracing.Tracing, *tracetest.InMemoryExporter, *sdk.TracerProvider) {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(append([]sdk.TracerProviderOption{sdk.WithSampler(sdk.AlwaysSample()), sdk.WithSyncer(spans)}, options...)...)
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	return tracing.New(provider), spans, provider
}

// delivery has a traceparent, and a tracestate unless that is empty.
func delivery(parent, state string) posthaste.RawDelivery {
	d := posthaste.RawDelivery{ID: 1, MessageID: 2, Queue: "orders", Subscription: "default", Attempt: 1}
	for name, value := range map[string]string{posthaste.HeaderTraceParent: parent, posthaste.HeaderTraceState: state} {
		if value != "" {
			if d.Headers == nil {
				d.Headers = map[string]string{}
			}
			d.Headers[name] = value
		}
	}
	return d
}

func names(spans *tracetest.InMemoryExporter) (all []string) {
	for _, s := range spans.GetSpans() {
		all = append(all, s.Name)
	}
	return all
}

// A trace that its sender does not sample continues, with its state, through a handler and the
// messages that it sends, and no span is created, whatever the sampler says.
func TestUnsampledTraceGoesOn(t *testing.T) {
	t.Parallel()
	tr, spans, _ := newTracing(t)
	for _, state := range []string{"", "shop=1,bank=2"} {
		for _, parent := range []string{unsampled, strings.TrimSuffix(unsampled, "0") + "2"} {
			d := delivery(parent, state)
			ctx, traces := tr.Handling(t.Context(), []posthaste.RawDelivery{d})
			if traces != nil {
				t.Errorf("it is followed by %v", traces)
			}
			want := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(t.Context(), propagation.MapCarrier(d.Headers)))
			if got := trace.SpanContextFromContext(ctx); !got.Equal(want) || !got.IsValid() {
				t.Errorf("of %s (%s) the handler gets %v, want %v", parent, state, got, want)
			}
			given := []posthaste.Message{{Queue: "mails"}, {Queue: "mails"}, {Queue: "mails", Headers: map[string]string{"lang": "en", "tracestate": "old=1"}}}
			_, sent, ended := tr.Sending(ctx, given)
			ended(nil, errors.New("the store is away"))
			for i, m := range sent {
				want := maps.Clone(d.Headers)
				if i == 2 {
					want["lang"] = "en"
				}
				if !maps.Equal(m.Headers, want) {
					t.Errorf("message %d is sent with %v, want %v", i, m.Headers, want)
				}
			}
			if given[0].Headers != nil || len(given[2].Headers) != 2 || given[2].Headers["tracestate"] != "old=1" {
				t.Errorf("the caller's messages were changed: %v", given)
			}
			tr.Settling(t.Context(), d.Headers, make([]posthaste.Settlement, 1))(nil, errors.New("the store is away"))
		}
	}
	if len(spans.GetSpans()) != 0 {
		t.Errorf("there are spans %v", names(spans))
	}
}

// A message that names an unsampled trace itself is sent unchanged, next to others that have
// spans.
func TestSendingKeepsUnsampledHeaders(t *testing.T) {
	t.Parallel()
	tr, spans, provider := newTracing(t)
	own := posthaste.Message{Queue: "orders", Headers: map[string]string{posthaste.HeaderTraceParent: unsampled, "lang": "en"}}
	ctx, span := provider.Tracer("shop").Start(t.Context(), "order placed")
	inner, sent, ended := tr.Sending(ctx, []posthaste.Message{own})
	ended(nil, nil)
	if got := trace.SpanContextFromContext(inner); got.TraceID().String() != traceID || got.IsSampled() {
		t.Errorf("it is sent in %v", got)
	}
	if !maps.Equal(sent[0].Headers, own.Headers) {
		t.Errorf("it is sent with %v", sent[0].Headers)
	}
	_, sent, ended = tr.Sending(ctx, []posthaste.Message{own, {Queue: "orders"}, {Queue: "mails", Headers: map[string]string{posthaste.HeaderTraceParent: sampled}}})
	ended([]posthaste.Sent{{ID: 1}, {ID: 2}, {ID: 3}}, nil)
	span.End()
	if !maps.Equal(sent[0].Headers, own.Headers) {
		t.Errorf("beside others it is sent with %v", sent[0].Headers)
	}
	for i, of := range map[int]string{1: span.SpanContext().TraceID().String(), 2: traceID} {
		if parent := sent[i].Headers[posthaste.HeaderTraceParent]; !strings.HasPrefix(parent, "00-"+of) || !strings.HasSuffix(parent, "-01") || parent == sampled {
			t.Errorf("message %d is sent with %s, want a span in trace %s", i, parent, of)
		}
	}
	if got := names(spans); len(got) != 3 || !slices.Contains(got, "send orders") || !slices.Contains(got, "send mails") {
		t.Errorf("there are spans %v", got)
	}
}

// Only valid headers that say "not sampled" skip the sampler. The propagator and the sampler
// handle all others: in the sender's trace, or in a new trace if the headers are invalid.
func TestOtherHeadersAreThePropagators(t *testing.T) {
	t.Parallel()
	for parent, goesOn := range map[string]bool{
		"":                             false,
		sampled:                        true,
		"00-zz":                        false,
		"01" + unsampled[2:]:           true,  // a later version
		"01" + unsampled[2:] + "-more": true,  // which may have more fields
		"ff" + unsampled[2:]:           false, // invalid version
		unsampled + "-more":            false,
		unsampled + "0":                false,
		unsampled[:54]:                 false,
		strings.ToUpper(unsampled):     false,
		unsampled[:53] + "04":          false, // reserved flags
		unsampled[:53] + "10":          false,
		unsampled[:53] + "0g":          false,
		unsampled[:53] + "03":          true,
		"00-00000000000000000000000000000000-b7ad6b7169203331-00": false,
		"00-" + traceID + "-0000000000000000-00":                  false,
		"00-" + traceID + "_b7ad6b7169203331-00":                  false,
		"00-" + traceID + "-b7ad6b7169203331_00":                  false,
		"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-00": false,
		"00-" + traceID + "-b7ad6b716920333x-00":                  false,
	} {
		tr, spans, _ := newTracing(t)
		ctx, traces := tr.Handling(t.Context(), []posthaste.RawDelivery{delivery(parent, "")})
		if len(traces) != 1 || traces[0] == nil {
			t.Errorf("%q is not followed", parent)
			continue
		}
		traces[0].Handled(nil)
		if got := trace.SpanContextFromContext(ctx).TraceID().String() == traceID; got != goesOn || len(spans.GetSpans()) != 1 {
			t.Errorf("%q goes on: %t, want %t; spans %v", parent, got, goesOn, names(spans))
		}
	}
}

// A call with several messages has a span if one of them is sampled. The span links to the
// sampled ones and ends with the last of them.
func TestBatchIsFollowedForItsSampledMessages(t *testing.T) {
	t.Parallel()
	tr, spans, _ := newTracing(t)
	_, traces := tr.Handling(t.Context(), []posthaste.RawDelivery{delivery(unsampled, ""), delivery(sampled, ""), delivery(unsampled, ""), delivery(sampled, "")})
	if len(traces) != 4 || traces[0] != nil || traces[2] != nil || traces[1] == nil || traces[3] == nil {
		t.Fatalf("they are followed by %v", traces)
	}
	traces[1].Handled(errors.New("no such card"))
	if len(spans.GetSpans()) != 1 {
		t.Errorf("after one of two there are spans %v", names(spans))
	}
	traces[3].Handled(nil)
	ended := spans.GetSpans()
	if len(ended) != 3 {
		t.Fatalf("after both there are spans %v", names(spans))
	}
	call := ended[2]
	if len(call.Links) != 2 || call.Links[0].SpanContext.SpanID() != ended[0].SpanContext.SpanID() || call.Links[1].SpanContext.SpanID() != ended[1].SpanContext.SpanID() {
		t.Errorf("the call's span links to %v", call.Links)
	}

	spans.Reset()
	ctx, traces := tr.Handling(t.Context(), slices.Repeat([]posthaste.RawDelivery{delivery(unsampled, "")}, 3))
	if got := trace.SpanContextFromContext(ctx); traces != nil || got.TraceID().String() != traceID || got.IsSampled() || len(spans.GetSpans()) != 0 {
		t.Errorf("where none is sampled they are followed by %v in %v, with spans %v", traces, got, names(spans))
	}
	// Without a provider, messages keep their traces and get no new one.
	ctx, traces = tracing.New(noop.NewTracerProvider()).Handling(t.Context(), slices.Repeat([]posthaste.RawDelivery{delivery("", "")}, 3))
	if trace.SpanContextFromContext(ctx).IsValid() || traces != nil {
		t.Errorf("without spans there are %v in %v", traces, trace.SpanContextFromContext(ctx))
	}
}

// Spans that are recorded and not sampled, which some processors need, also end.
func TestRecordedSpansEnd(t *testing.T) {
	t.Parallel()
	recorder := tracetest.NewSpanRecorder()
	tr, _, _ := newTracing(t, sdk.WithSampler(sdk.AlwaysRecord(sdk.NeverSample())), sdk.WithSpanProcessor(recorder))
	_, traces := tr.Handling(t.Context(), []posthaste.RawDelivery{delivery("", "")})
	traces[0].Handled(nil)
	ctx, _, outer := tr.Sending(t.Context(), make([]posthaste.Message, 1))
	_, _, inner := tr.Sending(ctx, make([]posthaste.Message, 1)) // as within a handler
	inner(nil, nil)
	outer(nil, nil)
	if n := len(recorder.Ended()); n != 3 {
		t.Errorf("%d spans have ended, want 3", n)
	}
}

// An unsampled message costs almost nothing. Not parallel: the test counts the allocations of
// the whole process.
func TestUnsampledCostsLittle(t *testing.T) {
	always, _, _ := newTracing(t)
	never, _, _ := newTracing(t, sdk.WithSampler(sdk.NeverSample()))
	ctx := context.Background()
	one := []posthaste.RawDelivery{delivery(unsampled, "")}
	many := slices.Repeat(one, 100)
	bare := []posthaste.RawDelivery{delivery("", "")}
	messages := make([]posthaste.Message, 100)
	within, _ := always.Handling(ctx, one)
	send := func(tr *tracing.Tracing, ctx context.Context) {
		_, _, ended := tr.Sending(ctx, messages)
		ended(nil, nil)
	}
	for _, c := range []struct {
		what string
		do   func()
		most float64
	}{
		{"handling one", func() { always.Handling(ctx, one) }, 2},
		{"handling a hundred together", func() { always.Handling(ctx, many) }, 3},
		{"handling one that no sender follows", func() { never.Handling(ctx, bare) }, 5},
		{"settling one", func() { always.Settling(ctx, one[0].Headers, nil)(nil, nil) }, 0},
		{"sending a hundred", func() { send(always, within) }, 6},
		{"sending a hundred that had no trace before", func() { send(never, ctx) }, 8},
	} {
		if n := testing.AllocsPerRun(100, c.do); n > c.most {
			t.Errorf("%s costs %v allocations, at most %v", c.what, n, c.most)
		} else {
			t.Logf("%s: %v allocations", c.what, n)
		}
	}
}
