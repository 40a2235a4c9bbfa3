package bench

import (
	"context"
	"log/slog"
)

// quiet returns a logger that logs only warnings and errors, because a log line for each
// message would be measured, too.
func quiet(log *slog.Logger) *slog.Logger {
	return slog.New(warnings{log.Handler()})
}

type warnings struct{ slog.Handler }

// Enabled implements [slog.Handler].
func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}

// WithAttrs implements [slog.Handler].
func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }
