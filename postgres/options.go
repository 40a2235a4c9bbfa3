package postgres

import (
	"log/slog"
)

// Option changes how an [Engine] works.
type Option func(*options)

// options are the settings of [New] and [Open].
type options struct {
	log         *slog.Logger
	polling     bool
	poolSize    int
	lazy        bool
	environment string
}

// WithLogger sets the log for events that no method returns, such as a lost listening connection.
// The default is [slog.Default].
func WithLogger(log *slog.Logger) Option {
	return func(o *options) { o.log = log }
}

// WithPollingOnly makes the engine work behind poolers in transaction mode: it keeps no state
// in sessions. Idle workers poll every 200 ms and are not notified, and [Open] uses no
// prepared statements. The caller of [New] must set its pool to [pgx.QueryExecModeExec].
func WithPollingOnly() Option {
	return func(o *options) { o.polling = true }
}

// WithLazyConnect makes [Open] return without connecting. Until the database is available all methods
// return Unavailable. [Engine.Ready] does the checks of Open.
func WithLazyConnect() Option {
	return func(o *options) { o.lazy = true }
}

// WithPoolSize sets the maximum size of [Open]'s pool. The default is pool_max_conns of the
// URL, or [DefaultPoolSize]. [New] ignores it.
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

// WithEnvironment names the environment of this program, such as "production". The database
// records the names that workers gave during the last day. After a start or promotion of the
// server, nothing is handed out until a program gives one of these names, or [Rebase] is run.
// A physical copy of production, such as a restored snapshot, therefore does not deliver in a
// test environment. The default is made of the URL's hosts, ports and database. A server on
// this machine, reached by a loopback address or a socket, has an empty name, and all of these
// count as the same environment. Characters after the first 255 are ignored.
func WithEnvironment(name string) Option {
	return func(o *options) { o.environment = name }
}
