package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
)

// defaultList is how much a listing shows unless told otherwise.
const defaultList = 100

// QueueCreate implements [posthaste.Admin]. A queue that exists with the same
// options is left as it is; with others the error is a Conflict.
func (e *Engine) QueueCreate(ctx context.Context, name string, o posthaste.QueueOptions) error {
	options := map[string]any{}
	number := func(name string, n int) {
		if n != 0 {
			options[name] = n
		}
	}
	duration := func(into map[string]any, name string, d time.Duration) {
		if d != 0 {
			// Seconds: PostgreSQL 14 takes no more than 2^31 microseconds.
			into[name] = fmt.Sprintf("%.6f seconds", d.Seconds())
		}
	}
	number("max_attempts", o.MaxAttempts)
	number("max_payload", o.MaxPayload)
	number("lanes", o.Lanes)
	duration(options, "timeout", o.Timeout)
	backoff := map[string]any{}
	duration(backoff, "base", o.BackoffBase)
	duration(backoff, "max", o.BackoffMax)
	if len(backoff) > 0 {
		options["backoff"] = backoff
	}
	text, err := json.Marshal(options)
	if err != nil {
		return err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err = e.pool.Exec(ctx, "select posthaste.create_queue($1::text, $2::text::jsonb)", name, string(text))
	return readError(err) // doing it again is harmless
}

// QueueDrop implements [posthaste.Admin]. It waits for senders in flight.
func (e *Engine) QueueDrop(ctx context.Context, name string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err := e.pool.Exec(ctx, "select posthaste.drop_queue($1::text)", name)
	return writeError(err)
}

// query runs a reading statement and hands each row to scan.
func (e *Engine) query(ctx context.Context, scan func(pgx.Rows) error, sql string, args ...any) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	rows, err := e.pool.Query(ctx, sql, args...)
	if err != nil {
		return readError(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return readError(err)
		}
	}
	return readError(rows.Err())
}

const queuesSQL = `select queue, subscription, depth, in_flight, dead, sent, done, retried, lost, sent_per_second, done_per_second,
  coalesce(extract(epoch from oldest_age), 0)::float8, max_attempts, extract(epoch from backoff_base)::float8,
  extract(epoch from backoff_max)::float8, extract(epoch from timeout)::float8, max_payload, lanes, created_at, counted_at
  from posthaste.queues where $1::text[] is null or queue = any ($1) order by queue, subscription`

// Queues implements [posthaste.Admin], by the view posthaste.queues. Names that
// are no queues are left out.
func (e *Engine) Queues(ctx context.Context, names ...string) ([]posthaste.QueueInfo, error) {
	if len(names) == 0 {
		names = nil // null means all
	}
	var infos []posthaste.QueueInfo
	err := e.query(ctx, func(rows pgx.Rows) error {
		var q posthaste.QueueInfo
		var s posthaste.SubscriptionInfo
		var oldest, base, most, timeout float64
		if err := rows.Scan(&q.Name, &s.Name, &s.Depth, &s.InFlight, &s.Dead, &s.Sent, &s.Done, &s.Retried, &s.Lost,
			&s.SentPerSecond, &s.DonePerSecond, &oldest, &q.Options.MaxAttempts, &base, &most, &timeout,
			&q.Options.MaxPayload, &q.Options.Lanes, &q.CreatedAt, &s.CountedAt); err != nil {
			return err
		}
		q.Options.BackoffBase, q.Options.BackoffMax, q.Options.Timeout = seconds(base), seconds(most), seconds(timeout)
		q.CreatedAt, s.CountedAt, s.OldestAge = q.CreatedAt.UTC(), s.CountedAt.UTC(), seconds(oldest)
		if len(infos) == 0 || infos[len(infos)-1].Name != q.Name {
			infos = append(infos, q)
		}
		last := &infos[len(infos)-1]
		last.Subscriptions = append(last.Subscriptions, s)
		return nil
	}, queuesSQL, names)
	return infos, err
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Microsecond)
}

// Message implements [posthaste.Admin]. A message that was settled is known as
// long as the ring has room; then the error is NotFound.
func (e *Engine) Message(ctx context.Context, id posthaste.MessageID) (posthaste.MessageInfo, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	rows, err := e.pool.Query(ctx, `select message_id, queue, subscription, state, due_at, key, kind, headers::text, reference, terms,
		content_type, created_at, attempts::text, payload from posthaste.message($1::bigint)`, int64(id))
	if err != nil {
		return posthaste.MessageInfo{}, readError(err)
	}
	infos, err := scanMessages(rows)
	if err != nil || len(infos) == 0 {
		return posthaste.MessageInfo{}, readError(err)
	}
	return infos[0], nil
}

// Messages implements [posthaste.Admin]. By reference and term it uses their
// indexes; with a state other than dead it looks at the 10,000 newest messages
// that match the rest, and says where it stopped if it did.
func (e *Engine) Messages(ctx context.Context, f posthaste.MessageFilter) ([]posthaste.MessageInfo, posthaste.MessageID, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	// One transaction, as long as which the second statement's setting lasts.
	var batch pgx.Batch
	batch.Queue(`select message_id, queue, subscription, state, due_at, key, kind, headers::text, reference, terms,
		content_type, created_at, attempts::text, null::bytea
		from posthaste.list_messages(nullif($1::text, ''), $2::text, $3::text, $4::text, nullif($5::bigint, 0), $6::int)`,
		f.Queue, f.Reference, f.Term, string(f.State), int64(f.Before), orDefault(f.Limit))
	batch.Queue("select coalesce(nullif(current_setting('posthaste.list_before', true), '')::bigint, 0)")
	answers := e.pool.SendBatch(ctx, &batch)
	defer answers.Close()
	rows, err := answers.Query()
	if err != nil {
		return nil, 0, readError(err)
	}
	infos, err := scanMessages(rows)
	if err != nil {
		return nil, 0, readError(err)
	}
	var cutAt posthaste.MessageID
	err = answers.QueryRow().Scan((*int64)(&cutAt))
	return infos, cutAt, readError(err)
}

func orDefault(limit int) int {
	if limit == 0 {
		return defaultList
	}
	return limit
}

// scanMessages gathers rows of one message each and subscription.
func scanMessages(rows pgx.Rows) ([]posthaste.MessageInfo, error) {
	defer rows.Close()
	var infos []posthaste.MessageInfo
	for rows.Next() {
		var m posthaste.MessageInfo
		var s posthaste.MessageState
		var due *time.Time
		var key, kind, headers, reference *string
		var attempts string
		if err := rows.Scan((*int64)(&m.ID), &m.Queue, &s.Subscription, (*string)(&s.State), &due, &key, &kind, &headers, &reference,
			&m.Terms, &m.ContentType, &m.CreatedAt, &attempts, &m.Payload); err != nil {
			return nil, err
		}
		if err := decode(headers, &m.Headers); err != nil {
			return nil, err
		}
		if err := decode(&attempts, &s.Attempts); err != nil {
			return nil, err
		}
		m.Key, m.Kind, m.Reference, m.CreatedAt = textOf(key), textOf(kind), textOf(reference), m.CreatedAt.UTC()
		if due != nil {
			s.DueAt = due.UTC()
		}
		if len(infos) == 0 || infos[len(infos)-1].ID != m.ID {
			infos = append(infos, m)
		}
		last := &infos[len(infos)-1]
		last.Subscriptions = append(last.Subscriptions, s)
	}
	return infos, rows.Err()
}

// textOf is the text, or "" for null.
func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// decode reads JSON of the ledger's own making; null leaves into as it is.
func decode(text *string, into any) error {
	if text == nil {
		return nil
	}
	return json.Unmarshal([]byte(*text), into)
}

// DeadLetters implements [posthaste.Admin].
func (e *Engine) DeadLetters(ctx context.Context, f posthaste.DeadLetterFilter) ([]posthaste.DeadLetter, error) {
	var letters []posthaste.DeadLetter
	err := e.query(ctx, func(rows pgx.Rows) error {
		var d posthaste.DeadLetter
		var key, kind, headers, reference *string
		var attempts string
		if err := rows.Scan((*int64)(&d.ID), &d.Queue, &d.Subscription, &key, &kind, &headers, &reference, &d.Terms,
			&d.ContentType, &d.Payload, &d.CreatedAt, &d.DiedAt, &d.Error, &attempts); err != nil {
			return err
		}
		if err := decode(headers, &d.Headers); err != nil {
			return err
		}
		if err := decode(&attempts, &d.Attempts); err != nil {
			return err
		}
		d.Key, d.Kind, d.Reference = textOf(key), textOf(kind), textOf(reference)
		d.CreatedAt, d.DiedAt = d.CreatedAt.UTC(), d.DiedAt.UTC()
		letters = append(letters, d)
		return nil
	}, `select message_id, queue, subscription, key, kind, headers::text, reference, terms, content_type, payload, created_at, died_at,
		error, attempts::text from posthaste.list_dead_letters(nullif($1::text, ''), $2::bigint[], nullif($3::bigint, 0), $4::int)`,
		f.Queue, plain(f.IDs), int64(f.Before), orDefault(f.Limit))
	return letters, err
}

// plain is ids as pgx takes them; nil stays nil, which is null.
func plain(ids []posthaste.MessageID) []int64 {
	if ids == nil {
		return nil
	}
	out := make([]int64, len(ids))
	for i, id := range ids {
		out[i] = int64(id)
	}
	return out
}

// Replay implements [posthaste.Admin], for at most 10,000 ids at a time. An
// empty by means the database user.
func (e *Engine) Replay(ctx context.Context, by string, ids ...posthaste.MessageID) ([]posthaste.MessageID, error) {
	return e.bury(ctx, "select posthaste.replay($1::bigint[], nullif($2::text, ''))", by, ids)
}

// Discard implements [posthaste.Admin], for at most 10,000 ids at a time. An
// empty by means the database user.
func (e *Engine) Discard(ctx context.Context, by string, ids ...posthaste.MessageID) ([]posthaste.MessageID, error) {
	return e.bury(ctx, "select posthaste.discard($1::bigint[], nullif($2::text, ''))", by, ids)
}

// bury takes dead letters off the list by a function that returns their ids.
func (e *Engine) bury(ctx context.Context, sql, by string, ids []posthaste.MessageID) ([]posthaste.MessageID, error) {
	if len(ids) == 0 {
		return nil, ctx.Err()
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	// Rows that were read are worth nothing before the end was: it may yet fail.
	rows, err := e.pool.Query(ctx, sql, plain(ids), by)
	if err != nil {
		return nil, writeError(err)
	}
	were, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, writeError(err)
	}
	out := make([]posthaste.MessageID, len(were))
	for i, id := range were {
		out[i] = posthaste.MessageID(id)
	}
	return out, nil
}

// Workers implements [posthaste.Admin]: those that registered and did not leave
// in order, lost ones included for about a day.
func (e *Engine) Workers(ctx context.Context) ([]posthaste.WorkerStatus, error) {
	var all []posthaste.WorkerStatus
	err := e.query(ctx, func(rows pgx.Rows) error {
		var w posthaste.WorkerStatus
		var lost *time.Time
		if err := rows.Scan((*int64)(&w.ID), &w.Name, &w.Version, &w.StartedAt, &w.HeartbeatAt, &lost); err != nil {
			return err
		}
		w.StartedAt, w.HeartbeatAt = w.StartedAt.UTC(), w.HeartbeatAt.UTC()
		if lost != nil {
			w.LostAt = lost.UTC()
		}
		all = append(all, w)
		return nil
	}, "select id, name, version, started_at, heartbeat_at, lost_at from posthaste.workers where ended_at is null order by id")
	return all, err
}
