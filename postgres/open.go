package postgres

import (
	"context"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthaste-mq/posthaste"
)

const (
	// applicationName is the default application_name.
	applicationName = "posthaste"
	// connectTimeout is the default limit of one attempt to connect.
	connectTimeout = 5 * time.Second
	// pingTimeout is the default limit of the pool's check of an idle connection. Without
	// it a half-open connection would use up the time of the call that acquires it, and
	// delay [Engine.Close] by a minute.
	pingTimeout = 2 * time.Second
)

// Open connects to url (a postgres:// URL or a keyword=value string) with its own pool, and
// checks that the engine can be used: the server's version, that it accepts writes, and that
// the schema fits this program. Its sessions override the encodings, formats and isolation
// level of database, role and URL, and the timeouts of database and role. Its errors are
// those of [Engine.Ready], or Invalid with field database_url.
//
// Dead peers are detected within seconds: an attempt to connect takes at most 5 s (or
// connect_timeout), silence on a connection 10 s, and the check of an idle connection 2 s (or
// pool_ping_timeout).
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

// Connect opens a single connection to url with the same settings and errors as [Open], for
// [Migrate] and other commands. It checks nothing. Of the options only [WithPollingOnly] has
// an effect: it disables prepared statements.
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

// misplaced matches URLs whose password has a / that is not percent-encoded. Parts of the
// password would be parsed as host, port and database, and appear in errors.
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

// urlError repeats neither the URL nor the parser's error, since both may contain the password.
func urlError() error {
	return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "database_url", Message: "the database URL cannot be read",
		Hint: "write it as postgres://user:password@host:5432/database?sslmode=require, and percent-encode special characters of the password"}
}
