package postgres

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
)

// reported is an element of the argument of posthaste.report_stats.
type reported struct {
	Queue        string          `json:"queue"`
	Subscription string          `json:"subscription"`
	Kind         string          `json:"kind"`
	Done         int64           `json:"done"`
	Retried      int64           `json:"retried"`
	Failed       int64           `json:"failed"`
	Wait         []int64         `json:"wait"`
	Run          []int64         `json:"run"`
	Errors       []reportedError `json:"errors,omitempty"`
}

type reportedError struct {
	Fingerprint string `json:"fingerprint"`
	Error       string `json:"error"`
	Message     int64  `json:"message"`
	Count       int64  `json:"count"`
}

// Report implements [posthaste.Engine].
func (e *Engine) Report(ctx context.Context, worker posthaste.WorkerID, stats []posthaste.HandlerStats) error {
	all := make([]reported, 0, len(stats))
	for _, s := range stats {
		row := reported{Queue: storable(s.Queue), Subscription: storable(s.Subscription), Kind: storable(s.Kind), Done: s.Done, Retried: s.Retried, Failed: s.Failed,
			Wait: s.Wait.Counts(), Run: s.Run.Counts()}
		for _, x := range s.Errors {
			row.Errors = append(row.Errors, reportedError{Fingerprint: storable(x.Fingerprint), Error: storable(x.Error), Message: int64(x.Message), Count: x.Count})
		}
		all = append(all, row)
	}
	text, _ := json.Marshal(all) // strings and numbers always encode
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err := e.pool.Exec(ctx, `select posthaste.report_stats($1, $2::text::jsonb)`, int64(worker), string(text))
	return writeError(err)
}

// storable returns a text without the one character that PostgreSQL does not store.
func storable(text string) string { return strings.ReplaceAll(text, "\x00", "") }

// HandlerStats implements [posthaste.Charts].
func (e *Engine) HandlerStats(ctx context.Context, q posthaste.StatsQuery) ([]posthaste.HandlerStats, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	return chart(ctx, e, scanHandlerStats, `select at, queue, subscription, kind, version, worker, done, retried, failed, wait, run
		from posthaste.list_stats($1, $2, $3, $4, $5, make_interval(secs => $6), $7)`,
		q.Queue, q.Subscription, q.Kind, nullTime(q.From), nullTime(q.To), q.Step.Seconds(), q.By.Names())
}

func scanHandlerStats(row pgx.CollectableRow) (s posthaste.HandlerStats, err error) {
	var queue, subscription, kind, version, worker *string
	var wait, run []int64
	err = row.Scan(&s.At, &queue, &subscription, &kind, &version, &worker, &s.Done, &s.Retried, &s.Failed, &wait, &run)
	s.At = s.At.UTC()
	s.Queue, s.Subscription, s.Kind, s.Version, s.Worker = textOf(queue), textOf(subscription), textOf(kind), textOf(version), textOf(worker)
	copy(s.Wait[:], wait)
	copy(s.Run[:], run)
	return s, err
}

// Failures implements [posthaste.Charts].
func (e *Engine) Failures(ctx context.Context, q posthaste.FailureQuery) ([]posthaste.Failure, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	return chart(ctx, e, scanFailure, `select queue, subscription, kind, version, fingerprint, coalesce(error, ''), coalesce(message_id, 0), count, first_at, last_at
		from posthaste.list_failures($1, $2, $3, $4, $5)`, q.Queue, q.Subscription, q.Kind, nullTime(q.From), orDefault(q.Limit))
}

func scanFailure(row pgx.CollectableRow) (f posthaste.Failure, err error) {
	err = row.Scan(&f.Queue, &f.Subscription, &f.Kind, &f.Version, &f.Fingerprint, &f.Error, (*int64)(&f.Message), &f.Count, &f.First, &f.Last)
	f.First, f.Last = f.First.UTC(), f.Last.UTC()
	return f, err
}

// Samples implements [posthaste.Charts].
func (e *Engine) Samples(ctx context.Context, q posthaste.SampleQuery) ([]posthaste.Sample, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	var queues []string // null for all
	if len(q.Queues) > 0 {
		queues = q.Queues
	}
	return chart(ctx, e, scanSample, `select at, coalesce(queue, ''), coalesce(subscription, ''), sent, done, retried, lost, expired,
		coalesce(depth, 0), coalesce(in_flight, 0), coalesce(dead, 0), coalesce(extract(epoch from oldest_age), 0)::float8
		from posthaste.list_samples($1, $2, $3, $4, make_interval(secs => $5))`, queues, q.Total, nullTime(q.From), nullTime(q.To), q.Step.Seconds())
}

func scanSample(row pgx.CollectableRow) (s posthaste.Sample, err error) {
	var age float64
	err = row.Scan(&s.At, &s.Queue, &s.Subscription, &s.Sent, &s.Done, &s.Retried, &s.Lost, &s.Expired, &s.Depth, &s.InFlight, &s.Dead, &age)
	s.At, s.OldestAge = s.At.UTC(), time.Duration(age*float64(time.Second))
	return s, err
}

// chart runs a function that returns figures, and returns its rows.
func chart[T any](ctx context.Context, e *Engine, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	rows, err := e.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, readError(err)
	}
	all, err := pgx.CollectRows(rows, scan)
	return all, readError(err)
}
