package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/jsoncheck"
)

// Cancel implements [posthaste.MessageAdmin].
func (e *Engine) Cancel(ctx context.Context, id posthaste.MessageID) ([]posthaste.Withdrawal, error) {
	return changed(ctx, e, pgx.RowToStructByPos[posthaste.Withdrawal],
		"select subscription, cancelled, state, requested from posthaste.cancel($1::bigint, nullif($2::text, ''))", int64(id), posthaste.ActorOf(ctx))
}

// Reschedule implements [posthaste.MessageAdmin].
func (e *Engine) Reschedule(ctx context.Context, id posthaste.MessageID, at time.Time) ([]posthaste.Withdrawal, error) {
	return changed(ctx, e, pgx.RowToStructByPos[posthaste.Withdrawal],
		"select subscription, rescheduled, state, false from posthaste.reschedule($1::bigint, $2::timestamptz, nullif($3::text, ''))", int64(id), at, posthaste.ActorOf(ctx))
}

// UpdateMessage implements [posthaste.MessageAdmin].
func (e *Engine) UpdateMessage(ctx context.Context, id posthaste.MessageID, update posthaste.MessageUpdate) (u posthaste.Updated, err error) {
	options, body, err := editOf(&update)
	if err != nil {
		return u, err
	}
	all, err := changed(ctx, e, func(row pgx.CollectableRow) (u posthaste.Updated, err error) {
		return u, row.Scan((*int64)(&u.ID), &u.Version)
	}, "select id, version from posthaste.edit_message($1::bigint, $2::text::jsonb, $3::bytea, nullif($4::text, ''), nullif($5::text, ''))",
		int64(id), options, body, update.Version, posthaste.ActorOf(ctx))
	if err != nil {
		return u, err
	}
	return all[0], nil
}

// RunMessage implements [posthaste.MessageAdmin].
func (e *Engine) RunMessage(ctx context.Context, id posthaste.MessageID) ([]posthaste.RunResult, error) {
	return changed(ctx, e, func(row pgx.CollectableRow) (r posthaste.RunResult, err error) {
		return r, row.Scan(&r.Subscription, &r.Due, (*string)(&r.State), &r.HeldBy)
	}, "select subscription, due, state, held_by from posthaste.run_message($1::bigint, nullif($2::text, ''))", int64(id), posthaste.ActorOf(ctx))
}

// editOf returns the changes of posthaste.edit_message, and the payload.
func editOf(u *posthaste.MessageUpdate) (options string, body []byte, err error) {
	all := map[string]any{}
	body, contentType, err := u.Body()
	if err != nil {
		return "", nil, err
	}
	if body != nil && posthaste.IsJSON(*contentType) {
		if err := jsoncheck.Check("payload", body); err != nil {
			return "", nil, err
		}
	}
	set := func(name string, value *string) {
		if value != nil {
			all[name] = *value
		}
	}
	set("content_type", contentType)
	set("key", u.Key)
	set("kind", u.Kind)
	set("reference", u.Reference)
	if u.Headers != nil {
		all["headers"] = u.Headers
	}
	if u.Terms != nil {
		all["terms"] = u.Terms
	}
	if u.Priority != nil {
		all["priority"] = *u.Priority
	}
	text, err := json.Marshal(all)
	return string(text), body, err
}
