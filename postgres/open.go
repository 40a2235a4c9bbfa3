// Package postgres is the engine that keeps messages in PostgreSQL. Every rule
// lives in the SQL functions of schema posthaste; this package calls them,
// installs them ([Migrate]), and sleeps at the doorbell.
package postgres

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/pacedbell"
)

const (
	// DefaultPoolSize is how many connections an engine of [Open] uses at most
	// unless told otherwise. Each Doorbell has one more.
	DefaultPoolSize = 10

	// applicationName is what pg_stat_activity shows unless the URL says else.
	applicationName = "posthaste"
	// connectTimeout bounds one attempt to connect unless the URL says else.
	connectTimeout = 5 * time.Second
	// silenceTimeout is after how long without any sign of life from the other
	// end a connection counts as dead (TCP keepalive and TCP_USER_TIMEOUT).
	silenceTimeout = 10 * time.Second
	// pingTimeout bounds the look whether a connection that was idle still lives,
	// unless the URL says else. Without it, one that is half open would take all the
	// time of the call that was given it, and hold up [Engine.Close] for a minute.
	pingTimeout = 2 * time.Second
	// statementTimeout bounds statements whose caller set no deadline, so that
	// a half-open connection behind a proxy cannot hold a caller for ever.
	statementTimeout = 30 * time.Second
	// readyTimeout bounds Ready, whatever the caller's deadline.
	readyTimeout = 3 * time.Second
)

// Engine keeps messages in PostgreSQL. It is safe for concurrent use.
//
// The number of connections is bounded: at most the pool's size, and one for
// each open Doorbell. It grows neither with queues nor with concurrency.
type Engine struct {
	pool    *pgxpool.Pool
	owned   bool // Open made the pool, so Close closes it
	polling bool
	warm    atomic.Bool // warmUp was called
	paces   sync.Map    // paceKey → *pace
	numbers sync.Map    // WorkerID → *atomic.Int64: the highest number claimed with
	log     *slog.Logger
	pacer   *pacedbell.Pacer
	// environment names where this program belongs; empty is nowhere.
	environment string
}

// Option changes how an [Engine] works.
type Option func(*options)

type options struct {
	log         *slog.Logger
	polling     bool
	poolSize    int
	lazy        bool
	environment string
}

// Logger sets where the engine reports what no caller is told, such as a lost
// listening connection. The default is [slog.Default].
func Logger(log *slog.Logger) Option {
	return func(o *options) { o.log = log }
}

// WithPollingOnly makes the engine work behind poolers in transaction mode:
// nothing is kept in a session. Workers look every 200 ms when idle and are
// not woken, and [Open] uses no prepared statements. A pool given to [New]
// must be set to [pgx.QueryExecModeExec] by the caller.
func WithPollingOnly() Option {
	return func(o *options) { o.polling = true }
}

// Lazily makes [Open] return without having connected: the database may come
// later, and until then every method answers Unavailable. [Engine.Ready] checks
// what Open would have.
func Lazily() Option {
	return func(o *options) { o.lazy = true }
}

// WithPoolSize bounds the connections of [Open]'s pool. The default is
// pool_max_conns of the URL, or [DefaultPoolSize]. [New] ignores it.
func WithPoolSize(connections int) Option {
	return func(o *options) { o.poolSize = connections }
}

func build(opts []Option) options {
	o := options{log: slog.Default()}
	for _, opt := range opts {
		opt(&o)
	}
	if o.log == nil {
		o.log = slog.New(slog.DiscardHandler)
	}
	return o
}

// New returns an engine on a pool that the caller keeps: Close leaves it open.
// Nothing is checked yet; [Engine.Ready] does. Sessions of the pool must have client_encoding
// UTF8, the DateStyle ISO, and transactions that are READ COMMITTED unless told otherwise;
// those of [Open] see to that by themselves.
func New(pool *pgxpool.Pool, opts ...Option) *Engine {
	o := build(opts)
	return newEngine(pool, o)
}

func newEngine(pool *pgxpool.Pool, o options) *Engine {
	if o.environment == "" {
		o.environment = environmentOf(pool.Config().ConnConfig)
	}
	e := &Engine{pool: pool, polling: o.polling, log: o.log, environment: o.environment}
	e.pacer = pacedbell.New(e.probe)
	return e
}

// Open connects to url (a postgres:// URL or a keyword=value string) with a
// pool of its own and checks that the engine can be used: the server's version,
// that it takes writes, and that the schema fits this program. What database, role or URL
// say of encodings, formats and isolation does not count for its sessions, nor do timeouts
// of database and role. Its errors are
// those of [Engine.Ready], or Invalid with field database_url.
//
// Connections notice a dead peer within seconds: connecting takes at most 5 s
// (or connect_timeout), silence on a connection 10 s, and the look whether an idle
// one still lives 2 s (or pool_ping_timeout).
func Open(ctx context.Context, url string, opts ...Option) (*Engine, error) {
	o := build(opts)
	config, err := poolConfig(url, o)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, readError(err)
	}
	e := newEngine(pool, o)
	e.owned = true
	if o.lazy {
		return e, nil
	}
	if err := e.verify(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return e, nil
}

// Connect opens a single connection to url with the same settings and errors
// as [Open], for [Migrate] and other commands. It checks nothing. Of the
// options, [WithPollingOnly] counts: no prepared statements.
func Connect(ctx context.Context, url string, opts ...Option) (*pgx.Conn, error) {
	config, err := poolConfig(url, build(opts))
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err == nil {
		if err = config.AfterConnect(ctx, conn); err != nil {
			closeConn(conn)
		}
	}
	if err != nil {
		return nil, readError(err)
	}
	return conn, nil
}

// misplaced is a URL with its first @ behind a /, which ends the password that is not
// percent-encoded: its parts would be taken for host, port and database, and told.
var misplaced = regexp.MustCompile(`^[a-z]+://[^@/]*/[^?]*@`)

func poolConfig(url string, o options) (*pgxpool.Config, error) {
	if misplaced.MatchString(url) {
		return nil, urlError()
	}
	plain, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, urlError()
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, urlError()
	}
	switch {
	case o.poolSize > 0:
		config.MaxConns = int32(min(o.poolSize, 1<<15))
	case plain.RuntimeParams["pool_max_conns"] == "":
		config.MaxConns = DefaultPoolSize
	}
	config.MinConns = min(config.MinConns, config.MaxConns)
	if config.PingTimeout == 0 {
		config.PingTimeout = pingTimeout
	}
	cc := config.ConnConfig
	if cc.RuntimeParams["application_name"] == "" {
		cc.RuntimeParams["application_name"] = applicationName
	}
	ownSession(cc.RuntimeParams)
	if cc.ConnectTimeout == 0 {
		cc.ConnectTimeout = connectTimeout
	}
	cc.DialFunc = dialer(cc.ConnectTimeout).DialContext
	if o.polling {
		cc.DefaultQueryExecMode = pgx.QueryExecModeExec
		cc.StatementCacheCapacity, cc.DescriptionCacheCapacity = 0, 0
	}
	config.AfterConnect = setSession(o.polling)
	return config, nil
}

// urlError does not repeat any of the URL, nor the parser's words on it: either
// may hold the password.
func urlError() error {
	return &posthaste.Error{Code: posthaste.Invalid, Field: "database_url", Message: "the database URL cannot be read",
		Hint: "it looks like postgres://user:password@host:5432/database?sslmode=require, with special characters of the password percent-encoded"}
}

// dialer makes connections that notice a dead peer: without the keepalive an
// idle listener, and without the user timeout a sent statement, waits for hours.
func dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{
		Timeout:         timeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silenceTimeout / 2, Interval: silenceTimeout / 5, Count: 3},
		Control:         controlSocket,
	}
}

// Ready returns nil if messages can be sent and handed out now. It answers
// within 3 seconds. Codes: Unavailable, Denied, ReadOnly, Unsupported (the
// server is older than PostgreSQL 14), SchemaOld, SchemaNew, Refused (the database is a
// copy, or may be one, and hands out nothing: see [Rebase] and [WithEnvironment]).
func (e *Engine) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return e.verify(ctx, checkIsolation, e.checkHere)
}

// verify checks what every call needs, and more.
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

// Close closes the pool if [Open] made it. It waits for running statements, and up to
// 15 s for connections that were given up and do not end.
// Doorbells are closed by who opened them.
func (e *Engine) Close() {
	if e.owned {
		e.pool.Close()
	}
}

// bounded gives ctx a deadline if it has none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, statementTimeout)
}

// isClosed reports whether err says that the connection is closed or broken.
func isClosed(err error) bool {
	return errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
