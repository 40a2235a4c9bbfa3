package cli

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/postgres"
)

// database is the flag that says which database to use.
type database struct {
	url string
	// sleeps says that the command sleeps at the doorbell, polling that it must
	// not. Commands that do neither keep nothing in a session anyway.
	sleeps, polling bool
}

func (d *database) flag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&d.url, "database-url", "", "the database, postgres://user:password@host:5432/database (or DATABASE_URL)")
}

// pollingFlag is for commands that sleep at the doorbell.
func (d *database) pollingFlag(cmd *cobra.Command) {
	d.sleeps = true
	cmd.Flags().BoolVar(&d.polling, "polling-only", false, "look for messages instead of being woken: for a pooler in transaction mode, such as pgbouncer")
}

// options open an engine as the flags say. Without a doorbell nothing is lost
// by leaving out prepared statements too, and poolers in transaction mode work.
func (d *database) options(more ...postgres.Option) []postgres.Option {
	if d.polling || !d.sleeps {
		more = append(more, postgres.WithPollingOnly())
	}
	return more
}

func (d *database) check() error {
	if d.url != "" {
		return nil
	}
	return &posthaste.Error{Code: posthaste.Invalid, Field: "database-url", Message: "no database is given",
		Hint: "give one with --database-url or DATABASE_URL; `posthaste up` brings its own and prints its URL"}
}

// open connects for one command.
func (d *database) open(ctx context.Context, log *slog.Logger) (*postgres.Engine, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	return postgres.Open(ctx, d.url, d.options(postgres.Logger(log), postgres.WithPoolSize(2))...)
}

// with runs f on an engine that is closed afterwards.
func (d *database) with(cmd *cobra.Command, log *slog.Logger, f func(ctx context.Context, e posthaste.Engine) error) error {
	engine, err := d.open(cmd.Context(), log)
	if err != nil {
		return err
	}
	defer engine.Close()
	return f(cmd.Context(), engine)
}

// retryOpen is how often a database that is away is tried: often enough for
// readiness to turn within 5 s of its coming.
const retryOpen = time.Second

// wait connects for a program that runs for long, and waits for a database
// that cannot be reached. Anything else that is wrong is an error at once. It
// logs once that it waits and once that it is over.
func (d *database) wait(ctx context.Context, log *slog.Logger) (*postgres.Engine, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	engine, err := postgres.Open(ctx, d.url, d.options(postgres.Logger(log), postgres.Lazily())...)
	if err != nil {
		return nil, err
	}
	if err := untilReady(ctx, engine, log); err != nil {
		engine.Close()
		return nil, err
	}
	return engine, nil
}

// untilReady waits for a database that cannot be reached. Anything else that is
// wrong is an error at once; but once it waits, it waits for whoever mends the
// database, too. It logs each reason once, and once that it is over.
func untilReady(ctx context.Context, engine posthaste.Engine, log *slog.Logger) error {
	for last := posthaste.Code(""); ; {
		err := engine.Ready(ctx)
		if err == nil {
			if last != "" {
				log.Info("the database can be reached now")
			}
			return nil
		}
		code := posthaste.CodeOf(err)
		if ctx.Err() != nil || last == "" && code != posthaste.Unavailable {
			return err
		}
		if code != last {
			last = code
			log.Warn("the database cannot be used yet, waiting for it", "error", err)
		}
		select {
		case <-time.After(retryOpen):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watched logs when the store stops or starts to be ready, as far as somebody
// asks.
type watched struct {
	posthaste.Engine
	log *slog.Logger

	mu   sync.Mutex
	away bool
}

// Ready implements [posthaste.Engine].
func (w *watched) Ready(ctx context.Context) error {
	err := w.Engine.Ready(ctx)
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
	engine, err := postgres.Open(ctx, url, postgres.Logger(options.Log), postgres.WithPoolSize(1), postgres.WithPollingOnly())
	if err != nil {
		return err
	}
	defer engine.Close()
	err = engine.QueueCreate(ctx, email.Queue, posthaste.QueueOptions{MaxPayload: posthaste.MaxPayloadBytes})
	if posthaste.CodeOf(err) == posthaste.Conflict {
		return nil // somebody made it with options of their own
	}
	return err
}
