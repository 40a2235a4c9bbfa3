package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	goruntime "runtime"
	"testing"
	"testing/synctest"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/telemetry"
	"github.com/posthaste-mq/posthaste/telemetry/tracing"
)

// allocations counts what the runtime allocates for a message under config, of a
// sender that names a trace, if that is not empty.
func allocations(t *testing.T, config Config, trace string) float64 {
	t.Helper()
	const messages = 20_000
	e := newStubEngine(messages)
	if trace != "" {
		for i := range e.batch {
			e.batch[i].Headers = map[string]string{posthaste.HeaderTraceParent: trace}
		}
	}
	config.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	w := New(e, config)
	HandleRaw(w, "q", func(context.Context, posthaste.RawDelivery) error { return nil })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	go func() { ended <- w.Run(ctx) }()
	<-e.done
	goruntime.ReadMemStats(&after)
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return float64(after.Mallocs-before.Mallocs) / messages
}

// Telemetry that is off costs nothing. Counters and logs of notable events cost next to
// nothing for a message. Traces cost as much as their spans. Not parallel: it counts the whole
// process's allocations.
func TestTelemetryCostsLittle(t *testing.T) {
	unsampled := sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample()))
	sampled := sdk.NewTracerProvider()
	defer func() { _ = sampled.Shutdown(context.Background()); _ = unsampled.Shutdown(context.Background()) }()
	off := allocations(t, Config{}, "")
	t.Logf("off: %.3f allocations a message", off)
	if off > 0.5 {
		t.Errorf("with telemetry off a message costs %.3f allocations", off)
	}
	const notSampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	for _, c := range []struct {
		name   string
		config Config
		trace  string
		most   float64 // more than off
	}{
		{"metrics and log lines", Config{Telemetry: telemetry.Multi(telemetry.NewPrometheus(), telemetry.Slog(slog.New(slog.NewTextHandler(io.Discard, nil))))}, "", 0.1},
		{"tracing, not sampled by the sender", Config{Tracing: tracing.New(sampled)}, notSampled, 2.1},
		{"tracing, not sampled by the worker", Config{Tracing: tracing.New(unsampled)}, "", 5.1},
		{"tracing, sampled", Config{Tracing: tracing.New(sampled)}, "", 45},
	} {
		more := allocations(t, c.config, c.trace) - off
		t.Logf("%s: %.3f more", c.name, more)
		if more > c.most {
			t.Errorf("%s: %.3f allocations more a message than without telemetry, at most %.1f", c.name, more, c.most)
		}
	}
}

// Of messages that are handled together those that are sampled are followed to
// their settling, each with what became of it, and the others are not.
func TestOfABatchTheSampledAreFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewInMemoryExporter()
		provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))
		defer func() { _ = provider.Shutdown(context.Background()) }()
		e := newStubEngine(4)
		for i := range e.batch[:4] {
			// Of traces 1 to 4 the odd ones are sampled.
			e.batch[i].Headers = map[string]string{posthaste.HeaderTraceParent: fmt.Sprintf("00-%032x-b7ad6b7169203331-%02x", i+1, (i+1)%2)}
		}
		w := New(e, Config{Tracing: tracing.New(provider), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
		HandleBatch(w, "q", func(_ context.Context, batch []posthaste.Delivery[[]byte]) []error {
			errs := make([]error, len(batch))
			for i, d := range batch {
				if d.ID == 3 {
					errs[i] = errors.New("no such card")
				}
			}
			return errs
		})
		stop := testrun.Background(t, w.Run)
		<-e.done
		stop()
		seen := map[string]codes.Code{}
		for _, s := range spans.GetSpans() {
			id := s.SpanContext.TraceID().String()
			if s.Name == "process q" && len(s.Links) > 0 {
				if len(s.Links) != 2 {
					t.Errorf("the call's span links to %v", s.Links)
				}
				id = "call"
			}
			seen[s.Name+" "+id[len(id)-4:]] = s.Status.Code
		}
		want := map[string]codes.Code{"process q 0001": codes.Unset, "settle q 0001": codes.Unset, "process q 0003": codes.Error, "settle q 0003": codes.Unset, "process q call": codes.Unset}
		if !maps.Equal(seen, want) {
			t.Errorf("there are spans %v, want %v", seen, want)
		}
	})
}
