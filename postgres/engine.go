// Package postgres is the engine that stores messages in PostgreSQL. The SQL functions of the
// schema posthaste implement all rules. This package installs them ([Migrate]) and calls them.
//
// [Open] or [New] returns an engine. [In] and [InSQL] send and acknowledge messages in a
// transaction of the application, so that they commit together with its other changes.
package postgres

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/pacedbell"
)

const (
	// DefaultPoolSize is the default maximum size of an [Open] engine's pool. Each Doorbell
	// has one more connection.
	DefaultPoolSize = 10

	// statementTimeout bounds statements whose caller set no deadline, so that a half-open
	// connection behind a proxy does not block a caller forever.
	statementTimeout = 30 * time.Second
	// readyTimeout bounds Ready, whatever the caller's deadline.
	readyTimeout = 3 * time.Second
)

// Engine stores messages in PostgreSQL. It is safe for concurrent use.
//
// It uses at most as many connections as the pool's size, and one for each open Doorbell. The
// number does not grow with queues or concurrency.
type Engine struct {
	pool    *pgxpool.Pool
	db      executor // pool, or a transaction (Transaction)
	owned   bool     // Open made the pool, so Close closes it
	polling bool
	warm    atomic.Bool // warmUp was called
	paces   sync.Map    // paceKey → *pace
	numbers sync.Map    // WorkerID → *atomic.Int64, the highest number of a claim
	log     *slog.Logger
	pacer   *pacedbell.Pacer
	// environment is the name that [WithEnvironment] sets; it may be empty.
	environment string
}

// New returns an engine on a pool that the caller owns; Close leaves it open. New checks
// nothing; [Engine.Ready] does. The pool's sessions must have client_encoding UTF8, DateStyle
// ISO and the default isolation level READ COMMITTED. [Open] sets these itself.
func New(pool *pgxpool.Pool, opts ...Option) *Engine {
	o := build(opts)
	return newEngine(pool, o)
}

func newEngine(pool *pgxpool.Pool, o options) *Engine {
	if o.environment == "" {
		o.environment = environmentOf(pool.Config().ConnConfig)
	}
	e := &Engine{pool: pool, db: pool, polling: o.polling, log: o.log, environment: o.environment}
	e.pacer = pacedbell.New(e.probe)
	return e
}

// Ready returns nil if messages can be sent and handed out now. It takes at most 3 seconds.
// Codes: Unavailable, Denied, ReadOnly, Unsupported (the server is older than PostgreSQL 14),
// SchemaOld, SchemaNew, Refused (the database is a copy, or may be one, and hands out nothing:
// see [Rebase] and [WithEnvironment]).
func (e *Engine) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return e.verify(ctx, checkIsolation, checkEnvironment(e.environment))
}

// verify runs the checks that every call needs, then more.
func (e *Engine) verify(ctx context.Context, more ...func(context.Context, querier) error) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	conn, err := e.pool.Acquire(ctx)
	if err != nil {
		return readError(err)
	}
	defer conn.Release()
	for _, check := range append([]func(context.Context, querier) error{checkServer, checkEncoding, checkSchema}, more...) {
		if err := check(ctx, conn.Conn()); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the pool if [Open] created it. It waits for running statements, and up to 15 s
// for abandoned connections. It does not close doorbells.
func (e *Engine) Close() {
	if e.owned {
		e.pool.Close()
	}
}

// bounded returns ctx with a deadline of statementTimeout if it has none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, statementTimeout)
}

// session returns the way to run statements on a connection of the pool.
func (e *Engine) session(conn *pgxpool.Conn) session {
	return session{conn: conn.Conn(), pooled: e.polling}
}

// call runs the statements on a connection of the pool, as [session.pipeline] does.
func (e *Engine) call(ctx context.Context, row func(i int, values [][]byte) error, calls ...bound) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	conn, err := e.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return e.session(conn).pipeline(ctx, row, calls...)
}

var probeStatement = statement{
	name: "posthaste_probe",
	sql:  "select coalesce(ready, true) from posthaste.worker_look(null, $1, $2)",
	oids: []uint32{pgtype.TextArrayOID, pgtype.TextArrayOID},
}

// probe reports in one statement which subscriptions have messages to hand out, without a
// worker. A subscription that is gone, or that exceeds the statement's limit, counts as ready.
func (e *Engine) probe(ctx context.Context, refs []posthaste.QueueRef) ([]bool, error) {
	queues := make([][]byte, len(refs))
	subscriptions := make([][]byte, len(refs))
	for i, ref := range refs {
		queues[i], subscriptions[i] = textParam(ref.Queue), textParam(ref.Subscription)
	}
	ready := make([]bool, 0, len(refs))
	err := e.call(ctx, func(_ int, v [][]byte) error {
		ready = append(ready, readBool(v[0]))
		return nil
	}, bound{statement: &probeStatement, params: [][]byte{arrayParam(pgtype.TextOID, queues), arrayParam(pgtype.TextOID, subscriptions)}})
	return ready[:min(len(ready), len(refs))], readError(err)
}

// searchPage runs a statement whose search may stop early, and returns its rows and the id at
// which it stopped, or 0. Both statements run in one transaction, because the setting with the
// id lasts that long.
func searchPage[T any](ctx context.Context, e *Engine, explain func(error) error, scan pgx.RowToFunc[T], sql string, args ...any) (posthaste.Page[T], error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var batch pgx.Batch
	batch.Queue(sql, args...)
	batch.Queue(`select coalesce(nullif(current_setting('posthaste.list_before', true), '')::bigint, 0),
		coalesce(nullif(current_setting('posthaste.unique_conflicts', true), '')::bigint[], '{}')`)
	answers := e.pool.SendBatch(ctx, &batch)
	rows, err := answers.Query()
	if err != nil {
		_ = answers.Close()
		return posthaste.Page[T]{}, explain(err)
	}
	var page posthaste.Page[T]
	page.Items, err = pgx.CollectRows(rows, scan)
	if err == nil {
		var conflicts []int64
		err = answers.QueryRow().Scan((*int64)(&page.Next), &conflicts)
		for _, id := range conflicts {
			page.Conflicts = append(page.Conflicts, posthaste.MessageID(id))
		}
	}
	// The rows are valid only if the transaction committed.
	if closed := answers.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return posthaste.Page[T]{}, explain(err)
	}
	return page, nil
}

// changed runs a function that writes, and returns its rows.
func changed[T any](ctx context.Context, e *Engine, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	// The rows are valid only if the statement ended without an error.
	rows, err := e.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, writeError(err)
	}
	all, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, writeError(err)
	}
	return all, nil
}
