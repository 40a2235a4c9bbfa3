package worker

import (
	"context"
	"io"
	"log/slog"
	goruntime "runtime"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/telemetry"
	"github.com/posthaste-mq/posthaste/telemetry/tracing"
)

// allocations counts what the runtime allocates for a message under config.
func allocations(t *testing.T, config Config) float64 {
	t.Helper()
	const messages = 20_000
	e := newStubEngine(messages)
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

// Telemetry that is off costs nothing; counting and logging what is worth a
// line cost next to nothing for a message; following it costs what its spans do.
// Not parallel: it counts the whole process's allocations.
func TestTelemetryCostsLittle(t *testing.T) {
	unsampled := sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample()))
	sampled := sdk.NewTracerProvider()
	defer func() { _ = sampled.Shutdown(context.Background()); _ = unsampled.Shutdown(context.Background()) }()
	off := allocations(t, Config{})
	t.Logf("off: %.3f allocations a message", off)
	if off > 0.5 {
		t.Errorf("with telemetry off a message costs %.3f allocations", off)
	}
	for _, c := range []struct {
		name   string
		config Config
		most   float64 // more than off
	}{
		{"metrics and log lines", Config{Telemetry: telemetry.Multi(telemetry.NewPrometheus(), telemetry.Slog(slog.New(slog.NewTextHandler(io.Discard, nil))))}, 0.1},
		{"tracing, not sampled", Config{Tracing: tracing.New(unsampled)}, 12},
		{"tracing, sampled", Config{Tracing: tracing.New(sampled)}, 45},
	} {
		more := allocations(t, c.config) - off
		t.Logf("%s: %.3f more", c.name, more)
		if more > c.most {
			t.Errorf("%s: %.3f allocations more a message than without telemetry, at most %.1f", c.name, more, c.most)
		}
	}
}
