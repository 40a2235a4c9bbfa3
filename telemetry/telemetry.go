// Package telemetry exports the events of workers and servers ([posthaste.Telemetry]) as
// Prometheus metrics and log/slog lines.
package telemetry

import (
	"context"

	"github.com/posthaste-mq/posthaste"
)

// Multi sends every event to each of several telemetries, in order. It skips nil ones.
func Multi(all ...posthaste.Telemetry) posthaste.Telemetry {
	var kept multi
	for _, t := range all {
		if t != nil {
			kept = append(kept, t)
		}
	}
	switch len(kept) {
	case 0:
		return posthaste.NoTelemetry{}
	case 1:
		return kept[0]
	}
	return kept
}

type multi []posthaste.Telemetry

func (m multi) Event(ctx context.Context, e posthaste.Event) {
	for _, t := range m {
		t.Event(ctx, e)
	}
}
