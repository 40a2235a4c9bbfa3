package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
)

// DeadLetters implements [posthaste.MessageAdmin]. A search uses one index and reads at most 10,000
// dead letters.
func (e *Engine) DeadLetters(ctx context.Context, f posthaste.DeadLetterFilter) (posthaste.Page[posthaste.DeadLetter], error) {
	page, err := searchPage(ctx, e, readError, scanDeadLetter,
		`select message_id, queue, subscription, key, kind, headers::text, reference, terms, content_type, payload, created_at, died_at,
		error, attempts::text, erased_at from posthaste.list_dead_letters($1::text::jsonb, $2::bigint[], nullif($3::bigint, 0), $4::int)`,
		deadFilter(f), plain(f.IDs), int64(f.Before), orDefault(f.Limit))
	return posthaste.NewPage(page.Items, orDefault(f.Limit), page.Next, func(d *posthaste.DeadLetter) posthaste.MessageID { return d.ID }), err
}

// deadFilter returns a filter in the form of posthaste.dead_filter, nil without conditions.
func deadFilter(f posthaste.DeadLetterFilter) *string {
	filter := map[string]string{}
	for _, x := range []struct{ name, value string }{
		{"queue", f.Queue}, {"subscription", f.Subscription}, {"kind", f.Kind}, {"key", f.Key}, {"reference", f.Reference}, {"term", f.Term}, {"error", f.Error},
	} {
		if x.value != "" {
			filter[x.name] = x.value
		}
	}
	if !f.DiedFrom.IsZero() {
		filter["died_from"] = f.DiedFrom.Format(time.RFC3339Nano)
	}
	if !f.DiedBefore.IsZero() {
		filter["died_before"] = f.DiedBefore.Format(time.RFC3339Nano)
	}
	if len(filter) == 0 {
		return nil
	}
	text, _ := json.Marshal(filter) // strings always encode
	out := string(text)
	return &out
}

func scanDeadLetter(row pgx.CollectableRow) (d posthaste.DeadLetter, err error) {
	var key, kind, headers, reference *string
	var attempts string
	var erased *time.Time
	if err := row.Scan((*int64)(&d.ID), &d.Queue, &d.Subscription, &key, &kind, &headers, &reference, &d.Terms,
		&d.ContentType, &d.Payload, &d.CreatedAt, &d.DiedAt, &d.Error, &attempts, &erased); err != nil {
		return d, err
	}
	if err := decode(headers, &d.Headers); err != nil {
		return d, err
	}
	d.Key, d.Kind, d.Reference = textOf(key), textOf(kind), textOf(reference)
	d.CreatedAt, d.DiedAt, d.ErasedAt = d.CreatedAt.UTC(), d.DiedAt.UTC(), timeOf(erased)
	return d, decode(&attempts, &d.Attempts)
}

// Replay implements [posthaste.MessageAdmin] for at most 10,000 messages at a time.
func (e *Engine) Replay(ctx context.Context, f posthaste.DeadLetterFilter) (posthaste.Page[posthaste.MessageID], error) {
	return e.bury(ctx, "replay", f)
}

// Discard implements [posthaste.MessageAdmin] for at most 10,000 messages at a time.
func (e *Engine) Discard(ctx context.Context, f posthaste.DeadLetterFilter) (posthaste.Page[posthaste.MessageID], error) {
	return e.bury(ctx, "discard", f)
}

// bury calls posthaste.replay or posthaste.discard.
func (e *Engine) bury(ctx context.Context, verb string, f posthaste.DeadLetterFilter) (posthaste.Page[posthaste.MessageID], error) {
	if err := f.CheckChoice(); err != nil {
		return posthaste.Page[posthaste.MessageID]{}, err
	}
	actor := posthaste.ActorOf(ctx)
	if len(f.IDs) > 0 {
		return searchPage(ctx, e, writeError, scanMessageID, "select posthaste."+verb+"($1::bigint[], nullif($2::text, ''))", plain(f.IDs), actor)
	}
	filter := deadFilter(f)
	if f.All {
		all := `{"all": true}`
		filter = &all
	}
	return searchPage(ctx, e, writeError, scanMessageID,
		"select posthaste."+verb+"(by => nullif($1::text, ''), filter => $2::text::jsonb, before => nullif($3::bigint, 0), max => $4::int)",
		actor, filter, int64(f.Before), orDefault(f.Limit))
}

func scanMessageID(row pgx.CollectableRow) (id posthaste.MessageID, err error) {
	return id, row.Scan((*int64)(&id))
}

// Erase implements [posthaste.MessageAdmin] for at most 1,000 messages at a time.
func (e *Engine) Erase(ctx context.Context, term string, before posthaste.MessageID) (posthaste.Page[posthaste.Erasure], error) {
	return searchPage(ctx, e, writeError, func(row pgx.CollectableRow) (x posthaste.Erasure, err error) {
		var queue *string
		err = row.Scan((*int64)(&x.MessageID), &queue, &x.Pending)
		x.Queue = textOf(queue)
		return x, err
	}, "select message_id, queue, outcome = 'pending' from posthaste.erase($1::text, nullif($2::text, ''), nullif($3::bigint, 0))", term, posthaste.ActorOf(ctx), int64(before))
}

// Actions implements [posthaste.Observer].
func (e *Engine) Actions(ctx context.Context, f posthaste.ActionFilter) ([]posthaste.Action, error) {
	var all []posthaste.Action
	err := e.query(ctx, func(rows pgx.Rows) error {
		var a posthaste.Action
		var queue, details *string
		var message *int64
		if err := rows.Scan(&a.ID, &a.At, &a.By, &a.Action, &queue, &message, &details); err != nil {
			return err
		}
		a.At, a.Queue = a.At.UTC(), textOf(queue)
		if message != nil {
			a.MessageID = posthaste.MessageID(*message)
		}
		if details != nil {
			a.Details = json.RawMessage(*details)
		}
		all = append(all, a)
		return nil
	}, `select id, at, by, action, queue, message_id, details::text
		from posthaste.list_actions(nullif($1::text, ''), nullif($2::bigint, 0), nullif($3::bigint, 0), $4::int)`,
		f.Queue, int64(f.MessageID), f.Before, orDefault(f.Limit))
	return all, err
}
