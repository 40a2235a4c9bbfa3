package inbox

import (
	"context"
	"log/slog"
	"time"
)

// Forget lets the inbox on PostgreSQL forget what is older than its window, until ctx
// ends: at once and then every minute it calls posthaste_inbox.rotate, which nearly
// always has nothing to do. Where nobody calls that, the inbox grows for ever. Let it
// run in a goroutine of each program that remembers; any number may. db is a pool, or
// a connection that nothing else uses, of pgx. What fails is logged to log (nil:
// slog's default) and tried again a minute later.
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
			log.Error("the inbox does not forget what is old, and grows", "error", err)
		}
		select {
		case <-next.C:
		case <-ctx.Done():
		}
	}
}
