package inbox

import (
	"context"
	"log/slog"
	"time"
)

// Forget removes ids that are older than the window from the inbox on PostgreSQL, until ctx
// ends. It calls posthaste_inbox.rotate immediately and then every minute; most calls have
// nothing to do. If no process calls it, the inbox grows without limit. Run it in a goroutine
// of each program that remembers; any number may run. db is a pool of pgx, or a connection
// that nothing else uses. Errors are logged to log (nil: slog's default) and the call is
// repeated a minute later.
func Forget[R Row](ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) R
}, log *slog.Logger) {
	forget(ctx, db, log, time.Minute)
}

func forget[R Row](ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) R
}, log *slog.Logger, every time.Duration) {
	if log == nil {
		log = slog.Default()
	}
	next := time.NewTicker(every)
	defer next.Stop()
	for ctx.Err() == nil {
		var rotated bool
		if err := db.QueryRow(ctx, "select posthaste_inbox.rotate()").Scan(&rotated); err != nil && ctx.Err() == nil {
			log.Error("the inbox could not remove old ids and grows", "error", err)
		}
		select {
		case <-next.C:
		case <-ctx.Done():
		}
	}
}
