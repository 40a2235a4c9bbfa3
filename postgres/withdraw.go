package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
)

// Cancel implements [posthaste.MessageAdmin].
func (e *Engine) Cancel(ctx context.Context, id posthaste.MessageID) ([]posthaste.Withdrawal, error) {
	return changed(ctx, e, pgx.RowToStructByPos[posthaste.Withdrawal],
		"select subscription, cancelled, state from posthaste.cancel($1::bigint, nullif($2::text, ''))", int64(id), posthaste.ActorOf(ctx))
}

// Reschedule implements [posthaste.MessageAdmin].
func (e *Engine) Reschedule(ctx context.Context, id posthaste.MessageID, at time.Time) ([]posthaste.Withdrawal, error) {
	return changed(ctx, e, pgx.RowToStructByPos[posthaste.Withdrawal],
		"select subscription, rescheduled, state from posthaste.reschedule($1::bigint, $2::timestamptz, nullif($3::text, ''))", int64(id), at, posthaste.ActorOf(ctx))
}
