package cli

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/redis"
)

// database is the flags that say which store to use.
type database struct {
	url, redisURL, engine string
	flags                 *pflag.FlagSet
	// sleeps says that the command sleeps at the doorbell, polling that it must
	// not. Commands that do neither keep nothing in a session anyway.
	sleeps, polling bool
	environment     string
}

// The engines, as --engine names them.
const (
	onPostgres = "postgres"
	onRedis    = "redis"
)

func (d *database) flag(cmd *cobra.Command) {
	d.flags = cmd.Flags()
	d.flags.StringVar(&d.url, "database-url", "", "the database, postgres://user:password@host:5432/database (or DATABASE_URL)")
	d.flags.StringVar(&d.redisURL, "redis-url", "", "a Redis in place of the database, redis://user:password@host:6379/0 (or REDIS_URL)")
	d.flags.StringVar(&d.engine, "engine", "", "postgres or redis, where both are given")
}

// sqlFlag is flag for commands that there are on PostgreSQL alone: why says so in one
// sentence to whoever names a Redis.
func (d *database) sqlFlag(cmd *cobra.Command, why string) {
	d.flag(cmd)
	d.flags.Lookup("redis-url").Hidden, d.flags.Lookup("engine").Hidden = true, true
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		onlyRedis := d.url == "" && (d.redisURL != "" || d.engine == onRedis)
		if typed(d.flags, "redis-url") || typed(d.flags, "engine") && d.engine == onRedis || onlyRedis {
			return &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "redis-url", Message: cmd.CommandPath() + " needs PostgreSQL: " + why, Hint: "name a database with --database-url"}
		}
		if d.url != "" && !typed(d.flags, "engine") {
			d.engine, d.redisURL = onPostgres, "" // variables that are for other commands
		}
		return run(cmd, args)
	}
}

// pollingFlag is for commands that sleep at the doorbell, which are those that work on messages.
func (d *database) pollingFlag(cmd *cobra.Command) {
	d.sleeps = true
	cmd.Flags().BoolVar(&d.polling, "polling-only", false, "look for messages instead of being woken: for a pooler in transaction mode, such as pgbouncer")
	cmd.Flags().StringVar(&d.environment, "environment", "", "where this program belongs, such as production: a copy of its database delivers nothing to others (the host, port and database of the URL)")
}

// options open an engine as the flags say. Without a doorbell nothing is lost
// by leaving out prepared statements too, and poolers in transaction mode work.
func (d *database) options(more ...postgres.Option) []postgres.Option {
	if d.polling || !d.sleeps {
		more = append(more, postgres.WithPollingOnly())
	}
	if d.environment != "" {
		more = append(more, postgres.WithEnvironment(d.environment))
	}
	return more
}

// check finds out which engine is meant, if it is only one.
func (d *database) check() error {
	if err := checkEngine(d.engine); err != nil {
		return err
	}
	// What was typed is meant, and not what stays in the environment.
	if onDatabase := typed(d.flags, "database-url"); onDatabase != typed(d.flags, "redis-url") {
		means, flag := onRedis, "redis-url"
		if onDatabase {
			means, flag = onPostgres, "database-url"
		}
		if typed(d.flags, "engine") && d.engine != means {
			return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "engine", Message: "--engine " + d.engine + " contradicts --" + flag,
				Hint: "leave out the one that is not meant, or give the URL that --engine needs"}
		}
		d.engine = means
	}
	database, redis := d.url != "", d.redisURL != ""
	if database && redis && d.engine == "" {
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "engine", Message: "both a database and a Redis are given",
			Hint: "say which with --engine postgres or --engine redis (POSTHASTE_ENGINE), or leave one of them out"}
	}
	switch {
	case d.engine == onRedis && !redis:
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "redis-url", Message: "no Redis is given", Hint: "give one with --redis-url or REDIS_URL"}
	case redis && d.engine != onPostgres:
		d.engine = onRedis
	case database:
		d.engine = onPostgres
	default:
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "database-url", Message: "no database is given",
			Hint: "give one with --database-url or DATABASE_URL, or a Redis with --redis-url or REDIS_URL; `posthaste up` brings its own and prints its URL"}
	}
	if d.engine == onRedis && d.polling {
		return &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "polling-only", Message: "--polling-only is for poolers before PostgreSQL, and a Redis is given", Hint: "leave it out"}
	}
	return nil
}

func checkEngine(name string) error {
	if name == "" || name == onPostgres || name == onRedis {
		return nil
	}
	return posthaste.Invalidf("engine", "--engine must be postgres or redis, and is %q", name)
}

// open connects for one command.
func (d *database) open(ctx context.Context, log *slog.Logger) (posthaste.Store, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	if d.engine == onRedis {
		return openRedis(ctx, d.redisURL)
	}
	return postgres.Open(ctx, d.url, d.options(postgres.WithLogger(log), postgres.WithPoolSize(2))...)
}

// with runs f on an engine that is closed afterwards.
func (d *database) with(cmd *cobra.Command, log *slog.Logger, f func(ctx context.Context, e posthaste.Store) error) error {
	engine, err := d.open(cmd.Context(), log)
	if err != nil {
		return err
	}
	defer engine.Close()
	return f(posthaste.WithActor(cmd.Context(), caller()), engine)
}

// retryOpen is how often a database that is away is tried: often enough for
// readiness to turn within 5 s of its coming.
const retryOpen = time.Second

// openLazily is open for a program that runs for long: the database may be away.
func (d *database) openLazily(ctx context.Context, log *slog.Logger) (posthaste.Store, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	if d.engine == onRedis {
		return openRedis(ctx, d.redisURL, redis.WithLazyConnect())
	}
	return postgres.Open(ctx, d.url, d.options(postgres.WithLogger(log), postgres.WithLazyConnect())...)
}

// openRedis names the flag where the URL is none.
func openRedis(ctx context.Context, url string, options ...redis.Option) (posthaste.Store, error) {
	engine, err := redis.Open(ctx, url, options...)
	if err == nil {
		return engine, nil
	}
	var e *posthaste.Error
	if errors.As(err, &e) && e.Field == "url" {
		e.Field = "redis-url"
	}
	return nil, err
}

// wait connects for a program that runs for long, and waits for a database
// that cannot be reached. Anything else that is wrong is an error at once. It
// logs once that it waits and once that it is over.
func (d *database) wait(ctx context.Context, log *slog.Logger) (posthaste.Store, error) {
	engine, err := d.openLazily(ctx, log)
	if err != nil {
		return nil, err
	}
	if err := untilReady(ctx, engine, log); err != nil {
		engine.Close()
		return nil, err
	}
	return engine, nil
}

// untilReady waits for a database that cannot be reached, or is a copy and waits for a
// person's word. Anything else that is wrong is an error at once; but once it waits, it waits for whoever mends the
// database, too. It logs each reason once, and once that it is over.
func untilReady(ctx context.Context, engine posthaste.Store, log *slog.Logger) error {
	for last := posthaste.Code(""); ; {
		err := engine.Ready(ctx)
		if err == nil {
			if last != "" {
				log.Info("the database can be used now")
			}
			return nil
		}
		code := posthaste.CodeOf(err)
		if ctx.Err() != nil || last == "" && code != posthaste.CodeUnavailable && code != posthaste.CodeRefused {
			return err
		}
		if code != last {
			last = code
			log.Warn("the database cannot be used yet, waiting for it", "error", err)
		}
		if err := waitToRetry(ctx); err != nil {
			return err
		}
	}
}

// waitToRetry waits until a database that is away is tried again.
func waitToRetry(ctx context.Context) error {
	select {
	case <-time.After(retryOpen):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// watched logs when the store stops or starts to be ready, as far as somebody
// asks.
type watched struct {
	posthaste.Store
	log *slog.Logger

	mu   sync.Mutex
	away bool
}

// Ready implements [posthaste.Engine].
func (w *watched) Ready(ctx context.Context) error {
	err := w.Store.Ready(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if away := err != nil; away != w.away {
		w.away = away
		if away {
			w.log.Warn("not ready", "error", err)
		} else {
			w.log.Info("ready again")
		}
	}
	return err
}

// install brings the schema up to date and makes the queue of e-mails. It is
// what `migrate up` and `up` have in common.
func install(ctx context.Context, url string, options postgres.MigrateOptions) error {
	conn, err := postgres.Connect(ctx, url, postgres.WithPollingOnly())
	if err != nil {
		return err
	}
	err = postgres.Migrate(ctx, conn, options)
	_ = conn.Close(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	engine, err := postgres.Open(ctx, url, postgres.WithLogger(options.Log), postgres.WithPoolSize(1), postgres.WithPollingOnly())
	if err != nil {
		return err
	}
	defer engine.Close()
	return makeEmails(ctx, engine, posthaste.QueueOptions{})
}

// makeEmails makes the queue of e-mails, if it is not there.
func makeEmails(ctx context.Context, engine posthaste.Store, o posthaste.QueueOptions) error {
	o.MaxPayload = posthaste.MaxPayloadBytes
	err := engine.CreateQueue(ctx, email.Queue, o)
	if posthaste.CodeOf(err) == posthaste.CodeConflict {
		return nil // somebody made it with options of their own
	}
	return err
}

// emailsKept is how long a settled mail can be looked up on Redis, where there is no
// ring that keeps it for a while anyway.
const emailsKept = 24 * time.Hour

// prepare makes what `migrate up` makes on PostgreSQL: on Redis there is nothing to
// install but the queue of e-mails. A program that runs waits, so it is repeated where
// Redis is away, and where the answer was lost: made again the same is no error.
func (d *database) prepare(ctx context.Context, engine posthaste.Store) error {
	if err := d.check(); err != nil || d.engine != onRedis {
		return err
	}
	for {
		err := makeEmails(ctx, engine, posthaste.QueueOptions{Retention: emailsKept})
		if code := posthaste.CodeOf(err); code != posthaste.CodeUnavailable && code != posthaste.CodeOutcomeUnknown {
			return err
		}
		if err := waitToRetry(ctx); err != nil {
			return err
		}
	}
}
