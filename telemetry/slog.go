package telemetry

import (
	"context"
	"log/slog"

	"github.com/posthaste-mq/posthaste"
)

// Slog writes every event as a log line: normal progress at debug level; retries, losses,
// possible duplicates and failures as warnings; dead letters as errors. Package worker already
// logs the important events by itself. Use Slog to log all of them, or to log them elsewhere.
func Slog(log *slog.Logger) posthaste.Telemetry {
	if log == nil {
		log = slog.Default()
	}
	return slogTelemetry{log}
}

type slogTelemetry struct{ log *slog.Logger }

func (t slogTelemetry) Event(ctx context.Context, e posthaste.Event) {
	level := levelOf(e)
	if !t.log.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 10)
	text := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, value))
		}
	}
	text("queue", e.Queue)
	text("subscription", e.Subscription)
	if e.Message != 0 {
		attrs = append(attrs, slog.String("message", e.Message.String()))
	}
	if e.Delivery != 0 {
		attrs = append(attrs, slog.String("delivery", e.Delivery.String()))
	}
	if e.Attempt != 0 {
		attrs = append(attrs, slog.Int("attempt", e.Attempt))
	}
	text("outcome", string(e.Outcome))
	if e.Count != 0 {
		attrs = append(attrs, slog.Int("count", e.Count))
	}
	if e.Duration != 0 {
		attrs = append(attrs, slog.Duration("duration", e.Duration))
	}
	if e.Kind == posthaste.EventBatch {
		attrs = append(attrs, slog.Int("failed", e.Failed), slog.Duration("claim", e.Claim), slog.Duration("settle", e.Settle), slog.Duration("total", e.Total))
	}
	if e.Kind == posthaste.EventTaken {
		attrs = append(attrs, slog.Int("known", e.Known), slog.Int("refused", e.Failed), slog.Duration("read", e.Claim), slog.Duration("acknowledge", e.Settle), slog.Duration("total", e.Total))
	}
	text("broker", e.Broker)
	text("task", e.Task)
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	t.log.LogAttrs(ctx, level, "posthaste: "+string(e.Kind), attrs...)
}

func levelOf(e posthaste.Event) slog.Level {
	switch {
	case e.Outcome == posthaste.OutcomeDead, e.Outcome == posthaste.OutcomeFailed:
		return slog.LevelError
	case e.Kind == posthaste.EventDuplicate, e.Kind == posthaste.EventLost, e.Kind == posthaste.EventClock, e.Kind == posthaste.EventError,
		e.Outcome == posthaste.OutcomeRetried, e.Outcome == posthaste.OutcomeLost:
		return slog.LevelWarn
	case e.Kind == posthaste.EventRescued:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}
