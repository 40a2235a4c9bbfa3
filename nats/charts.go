package nats

import (
	"context"

	"github.com/posthaste-mq/posthaste"
)

// Report implements [posthaste.Engine]. It stores nothing: see [posthaste.Capabilities].Charts.
func (e *Engine) Report(ctx context.Context, worker posthaste.WorkerID, _ []posthaste.HandlerStats) error {
	return e.alive(ctx, worker)
}

func noCharts() error {
	return unsupported("charts", "reports of workers and samples of queues are not kept")
}

// HandlerStats implements [posthaste.Charts]: it is unsupported.
func (e *Engine) HandlerStats(context.Context, posthaste.StatsQuery) ([]posthaste.HandlerStats, error) {
	return nil, noCharts()
}

// Failures implements [posthaste.Charts]: it is unsupported.
func (e *Engine) Failures(context.Context, posthaste.FailureQuery) ([]posthaste.Failure, error) {
	return nil, noCharts()
}

// Samples implements [posthaste.Charts]: it is unsupported.
func (e *Engine) Samples(context.Context, posthaste.SampleQuery) ([]posthaste.Sample, error) {
	return nil, noCharts()
}
