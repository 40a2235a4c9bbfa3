package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
)

// CreateQueue implements [posthaste.QueueAdmin]. It is idempotent; if the queue exists with other
// options the error is Conflict.
func (e *Engine) CreateQueue(ctx context.Context, name string, o posthaste.QueueOptions) error {
	if err := posthaste.CheckName("name", name); err != nil {
		return err
	}
	text, err := json.Marshal(o.Object(interval))
	if err != nil {
		return err
	}
	return e.repeatable(ctx, "select posthaste.create_queue($1::text, $2::text::jsonb, nullif($3::text, ''))", name, string(text), posthaste.ActorOf(ctx))
}

// interval returns d in the form of PostgreSQL's type, in seconds: PostgreSQL 14 accepts no
// more than 2^31 microseconds.
func interval(d time.Duration) string { return fmt.Sprintf("%.6f seconds", d.Seconds()) }

// UpdateQueue implements [posthaste.QueueAdmin].
func (e *Engine) UpdateQueue(ctx context.Context, name string, update posthaste.QueueUpdate) error {
	text, err := json.Marshal(update.Object(interval))
	if err != nil {
		return err
	}
	return e.repeatable(ctx, "select posthaste.update_queue($1::text, $2::text::jsonb, nullif($3::text, ''))", name, string(text), posthaste.ActorOf(ctx))
}

// DropQueue implements [posthaste.QueueAdmin]. Messages that open transactions sent to the queue are
// removed with it, even if these commit later.
func (e *Engine) DropQueue(ctx context.Context, name string, o posthaste.DropOptions) error {
	return e.exec(ctx, writeError, "select posthaste.drop_queue($1::text, nullif($2::text, ''), $3)", name, posthaste.ActorOf(ctx), o.IfEmpty)
}

// PurgeQueue implements [posthaste.QueueAdmin].
func (e *Engine) PurgeQueue(ctx context.Context, queue string) ([]posthaste.Purged, error) {
	return changed(ctx, e, pgx.RowToStructByPos[posthaste.Purged],
		"select subscription, purged from posthaste.purge($1::text, nullif($2::text, ''))", queue, posthaste.ActorOf(ctx))
}

// repeatable runs a statement whose repetition changes nothing, so that a lost response
// leaves no doubt.
func (e *Engine) repeatable(ctx context.Context, sql string, args ...any) error {
	return e.exec(ctx, readError, sql, args...)
}

// queuesSQL reads the view posthaste.queues, with the options as one object in which durations
// are seconds.
var queuesSQL = `select queue, subscription, depth, in_flight, dead, sent, done, retried, lost, sent_per_second, done_per_second,
  coalesce(extract(epoch from oldest_age), 0)::float8, paused_at, created_at, counted_at, paused_keys, paused_kinds,
  coalesce(filter, '{}'), coalesce(extract(epoch from max_lag), 0)::float8, withdrawn, expired, coalesce(set_aside, '[]'), ` + optionsSQL() + `
  from posthaste.queues where $1::text[] is null or queue = any ($1) order by queue, subscription`

// optionsSQL returns an expression over posthaste.queues, whose columns have the names of the
// options with "_" in place of ".".
func optionsSQL() string {
	var parts []string
	for _, option := range posthaste.QueueOptionTable() {
		column := strings.ReplaceAll(option.Name, ".", "_")
		value := column
		switch option.Field(&posthaste.QueueOptions{}).(type) {
		case *time.Duration:
			value = "extract(epoch from " + column + ")"
		case *posthaste.Rate:
			value = column + " || jsonb_build_object('per', extract(epoch from (" + column + " ->> 'per')::interval))"
		}
		parts = append(parts, "'"+option.Name+"', "+value)
	}
	return "jsonb_build_object(" + strings.Join(parts, ", ") + ")"
}

// scanOptions reads the result of optionsSQL.
func scanOptions(values map[string]json.RawMessage) (o posthaste.QueueOptions, err error) {
	for _, option := range posthaste.QueueOptionTable() {
		raw := values[option.Name]
		if len(raw) == 0 || string(raw) == "null" {
			continue
		}
		var fault error
		switch field := option.Field(&o).(type) {
		case *time.Duration:
			var s float64
			fault = json.Unmarshal(raw, &s)
			*field = seconds(s)
		case *posthaste.Rate:
			var rate struct {
				Limit, Burst int
				Per          float64
			}
			fault = json.Unmarshal(raw, &rate)
			*field = posthaste.Rate{Limit: rate.Limit, Per: seconds(rate.Per), Burst: rate.Burst}
		case *bool:
			if option.Values == nil {
				fault = json.Unmarshal(raw, field)
			} else {
				*field = string(raw) == strconv.Quote(option.Values[1])
			}
		case *map[string]posthaste.KindOptions:
			*field, fault = scanKinds(raw)
		default:
			fault = json.Unmarshal(raw, field)
		}
		if fault != nil {
			return o, fmt.Errorf("option %s of a queue is %s: %w", option.Name, raw, fault)
		}
	}
	return o, nil
}

// scanKinds reads the column kinds of the view posthaste.queues.
func scanKinds(raw []byte) (map[string]posthaste.KindOptions, error) {
	var kinds map[string]shownOptions
	err := json.Unmarshal(raw, &kinds)
	all := map[string]posthaste.KindOptions{}
	for kind, k := range kinds {
		all[kind] = k.options()
	}
	return all, err
}

// shownOptions are options of attempts as SQL shows them.
type shownOptions struct {
	MaxAttempts int         `json:"max_attempts"`
	Timeout     secondsText `json:"timeout"`
	Backoff     struct{ Base, Max secondsText }
}

func (o *shownOptions) options() posthaste.KindOptions {
	return posthaste.KindOptions{MaxAttempts: o.MaxAttempts, Timeout: time.Duration(o.Timeout),
		Backoff: posthaste.Backoff{Base: time.Duration(o.Backoff.Base), Max: time.Duration(o.Backoff.Max)}}
}

// secondsText is a duration in the form "1.5 seconds".
type secondsText time.Duration

func (s *secondsText) UnmarshalText(text []byte) error {
	n, err := strconv.ParseFloat(strings.TrimSuffix(string(text), " seconds"), 64)
	*s = secondsText(seconds(n))
	return err
}

// Queues implements [posthaste.Engine] with the view posthaste.queues. It ignores unknown names.
func (e *Engine) Queues(ctx context.Context, names ...string) ([]posthaste.QueueInfo, error) {
	if len(names) == 0 {
		names = nil // null means all
	}
	var infos []posthaste.QueueInfo
	err := e.query(ctx, func(rows pgx.Rows) (err error) {
		var q posthaste.QueueInfo
		var s posthaste.SubscriptionInfo
		var oldest, lag float64
		var filter struct {
			Kind    []string
			Headers map[string][]string
		}
		var paused *time.Time
		var aside []struct {
			Kind      string
			Waiting   int64
			OldestAge float64 `json:"oldest_age"`
			Known     bool
			Paused    bool
		}
		var options map[string]json.RawMessage
		if err := rows.Scan(&q.Name, &s.Name, &s.Depth, &s.InFlight, &s.Dead, &s.Sent, &s.Done, &s.Retried, &s.Lost, &s.SentPerSecond, &s.DonePerSecond,
			&oldest, &paused, &q.CreatedAt, &s.CountedAt, &q.PausedKeys, &q.PausedKinds, &filter, &lag, &s.Withdrawn, &s.Expired, &aside, &options); err != nil {
			return err
		}
		if q.Options, err = scanOptions(options); err != nil {
			return err
		}
		if paused != nil {
			q.PausedAt = paused.UTC()
		}
		slices.Sort(q.PausedKinds)
		s.Filter, s.MaxLag = posthaste.Filter{Kinds: filter.Kind, Headers: filter.Headers}, seconds(lag)
		q.CreatedAt, s.CountedAt, s.OldestAge = q.CreatedAt.UTC(), s.CountedAt.UTC(), seconds(oldest)
		for _, a := range aside {
			s.SetAside = append(s.SetAside, posthaste.SetAside{Kind: a.Kind, Waiting: a.Waiting, OldestAge: seconds(a.OldestAge), Known: a.Known, Paused: a.Paused})
		}
		if len(infos) == 0 || infos[len(infos)-1].Name != q.Name {
			infos = append(infos, q)
		}
		last := &infos[len(infos)-1]
		last.Subscriptions = append(last.Subscriptions, s)
		return nil
	}, queuesSQL, names)
	return infos, err
}

// Message implements [posthaste.MessageAdmin]. A settled message is kept until its space is reused;
// then the error is NotFound.
func (e *Engine) Message(ctx context.Context, id posthaste.MessageID) (posthaste.MessageInfo, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	rows, err := e.pool.Query(ctx, `select message_id, queue, subscription, state, due_at, key, kind, headers::text, reference, terms,
		content_type, created_at, attempts::text, payload, erased_at, version, options::text from posthaste.message($1::bigint)`, int64(id))
	if err != nil {
		return posthaste.MessageInfo{}, readError(err)
	}
	infos, err := scanMessages(rows)
	if err != nil || len(infos) == 0 {
		return posthaste.MessageInfo{}, readError(err)
	}
	return infos[0], nil
}

// Messages implements [posthaste.MessageAdmin]. A search by reference or term uses an index. A search
// by a kind, a time or a state other than dead looks at most at [posthaste.MaxSearched] deliveries of the
// newest messages that match the rest of the filter.
func (e *Engine) Messages(ctx context.Context, f posthaste.MessageFilter) (page posthaste.Page[posthaste.MessageInfo], err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	// Both statements run in one transaction, because the setting lasts that long.
	var batch pgx.Batch
	batch.Queue(`select message_id, queue, subscription, state, due_at, key, kind, headers::text, reference, terms,
		content_type, created_at, attempts::text, null::bytea, erased_at, null, null
		from posthaste.list_messages(nullif($1::text, ''), nullif($2::text, ''), nullif($3::text, ''), nullif($4::text, ''),
			nullif($5::bigint, 0), $6::int, nullif($7::text, ''), nullif($8::text, ''), $9::timestamptz)`,
		f.Queue, f.Reference, f.Term, string(f.State), int64(f.Before), orDefault(f.Limit), f.Key, f.Kind, nullTime(f.CreatedFrom))
	batch.Queue("select coalesce(nullif(current_setting('posthaste.list_before', true), '')::bigint, 0)")
	answers := e.pool.SendBatch(ctx, &batch)
	defer answers.Close()
	rows, err := answers.Query()
	if err != nil {
		return page, readError(err)
	}
	page.Items, err = scanMessages(rows)
	if err != nil {
		return page, readError(err)
	}
	if err := answers.QueryRow().Scan((*int64)(&page.Next)); err != nil {
		return page, readError(err)
	}
	// The SQL function limits rows. A message with several subscriptions has several, so a
	// full page may have fewer messages than the limit.
	if n := len(page.Items); n > 0 && rows.CommandTag().RowsAffected() >= int64(orDefault(f.Limit)) {
		page.Next = page.Items[n-1].ID
	}
	return page, nil
}

// scanMessages reads rows, one for each subscription of a message.
func scanMessages(rows pgx.Rows) ([]posthaste.MessageInfo, error) {
	defer rows.Close()
	var infos []posthaste.MessageInfo
	for rows.Next() {
		var m posthaste.MessageInfo
		var s posthaste.MessageState
		var due, erased *time.Time
		var key, kind, headers, reference, version, options *string
		var attempts string
		if err := rows.Scan((*int64)(&m.ID), &m.Queue, &s.Subscription, (*string)(&s.State), &due, &key, &kind, &headers, &reference,
			&m.Terms, &m.ContentType, &m.CreatedAt, &attempts, &m.Payload, &erased, &version, &options); err != nil {
			return nil, err
		}
		if err := decode(headers, &m.Headers); err != nil {
			return nil, err
		}
		if err := decode(&attempts, &s.Attempts); err != nil {
			return nil, err
		}
		var own shownOptions
		if err := decode(options, &own); err != nil {
			return nil, err
		}
		m.Options = own.options()
		m.Key, m.Kind, m.Reference, m.CreatedAt = textOf(key), textOf(kind), textOf(reference), m.CreatedAt.UTC()
		m.ErasedAt, m.Version = timeOf(erased), textOf(version)
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

// Vitals implements [posthaste.Observer].
func (e *Engine) Vitals(ctx context.Context) (v posthaste.Vitals, err error) {
	err = e.query(ctx, func(rows pgx.Rows) error {
		var slot, beat, upkeep float64
		err := rows.Scan(&v.SlotsFree, &v.SlotsWanted, &slot, &v.Workers, &v.OverdueWorkers, &beat, &v.Doorbells, &upkeep)
		v.SlotAge, v.HeartbeatAge, v.UpkeepAge = seconds(slot), seconds(beat), seconds(upkeep)
		return err
	}, `select slots_free, slots_wanted, coalesce(extract(epoch from slot_age), 0)::float8, alive, overdue,
		coalesce(extract(epoch from heartbeat_age), 0)::float8, doorbells, coalesce(extract(epoch from upkeep_age), 0)::float8 from posthaste.vitals()`)
	return v, err
}

// Workers implements [posthaste.Observer]. It returns workers that registered and did not
// unregister; lost ones for about a day.
func (e *Engine) Workers(ctx context.Context) ([]posthaste.WorkerStatus, error) {
	var all []posthaste.WorkerStatus
	err := e.query(ctx, func(rows pgx.Rows) error {
		var w posthaste.WorkerStatus
		var lost *time.Time
		var load []byte
		if err := rows.Scan((*int64)(&w.ID), &w.Name, &w.Version, &w.StartedAt, &w.HeartbeatAt, &lost, &load, &w.Sinks); err != nil {
			return err
		}
		w.StartedAt, w.HeartbeatAt = w.StartedAt.UTC(), w.HeartbeatAt.UTC()
		if lost != nil {
			w.LostAt = lost.UTC()
		}
		if load != nil {
			if err := json.Unmarshal(load, &w.State); err != nil {
				return fmt.Errorf("reading the load of worker %d: %w", w.ID, err)
			}
		}
		all = append(all, w)
		return nil
	}, "select id, name, version, started_at, heartbeat_at, lost_at, load, sinks from posthaste.workers where ended_at is null order by id")
	return all, err
}

// nullTime passes a time as a parameter, and the zero time as null.
func nullTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
