package worker

import (
	"context"
	"log/slog"

	"github.com/posthaste-mq/posthaste"
)

// reporter sends log lines and telemetry events about what a worker does.
type reporter struct {
	log *slog.Logger
	// debug says that successes are logged. It is read once, at the start, because
	// asking the logger costs time for each message.
	debug bool
	// event passes an event on to Config.Telemetry; nil without telemetry.
	event func(posthaste.Event)
}

// newReporter returns a reporter whose events get ctx, which must not end before the worker.
func newReporter(ctx context.Context, log *slog.Logger, telemetry posthaste.Telemetry) *reporter {
	r := &reporter{log: log, debug: log.Enabled(context.Background(), slog.LevelDebug)}
	if _, none := telemetry.(posthaste.NoTelemetry); !none {
		r.event = func(e posthaste.Event) { telemetry.Event(ctx, e) }
	}
	return r
}

// quiet reports whether events go nowhere, so that the caller can skip preparing them.
func (r *reporter) quiet() bool { return r.event == nil }

func (r *reporter) tell(e posthaste.Event) {
	if r.event != nil {
		r.event(e)
	}
}

// rescued reports deliveries that were made available again by a rescuer or a round of
// maintenance.
func (r *reporter) rescued(lost int) {
	if lost > 0 {
		r.log.Info("made deliveries of lost workers and ended leases available again", slog.Int("deliveries", lost))
		r.tell(posthaste.Event{Kind: posthaste.EventRescued, Count: lost})
	}
}
