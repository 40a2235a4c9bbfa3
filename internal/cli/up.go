//go:build unix

package cli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/dashboard"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/internal/catcher"
	"github.com/posthaste-mq/posthaste/internal/devpg"
	"github.com/posthaste-mq/posthaste/server"
	"github.com/posthaste-mq/posthaste/worker"
)

func newUp(a *app) *cobra.Command {
	var u upFlags
	cmd := &cobra.Command{
		Use: "up", Short: "Start PostgreSQL, server, worker and a mail catcher on this machine",
		Long: `Start an embedded PostgreSQL, the HTTP API, a worker for e-mails and a mail catcher
in one process, and print the next steps. Nothing else is needed; PostgreSQL is
downloaded at the first start. All data is stored in --data and survives restarts
and crashes.

With --engine redis, messages are stored in Redis instead of PostgreSQL. up starts
the installed redis-server with an append-only file that is synced to disk every
second. With --engine nats, they are stored in NATS JetStream: up starts the installed
nats-server with streams in files that are synced to disk every second.

Ctrl-C or SIGTERM stops everything in order: server, worker, mail catcher, then
the store. A second signal stops the program at once with exit code 130 or 143.`,
		Example: "  posthaste up\n  posthaste up --reset     # start with an empty database",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := u.checkStore(cmd.Flags()); err != nil {
				return err
			}
			return runUp(cmd.Context(), a, u)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&u.data, "data", ".posthaste", "data directory")
	flags.BoolVar(&u.reset, "reset", false, "remove all data first")
	u.yes.flag(cmd)
	u.serverFlags.flags(cmd)
	flags.IntVar(&u.postgresPort, "postgres-port", 5484, "port of the embedded PostgreSQL on 127.0.0.1; 0 selects a free port")
	flags.StringVar(&u.postgresBin, "postgres-bin", "", "directory with initdb and postgres, to use instead of a download")
	flags.StringVar(&u.engine, "engine", onPostgres, "store of the messages: "+orList("", localEngineNames()))
	flags.IntVar(&u.redisPort, "redis-port", 6484, "with --engine redis, port of Redis on 127.0.0.1; 0 selects a free port")
	flags.IntVar(&u.natsPort, "nats-port", 6485, "with --engine nats, port of NATS on 127.0.0.1; 0 selects a free port")
	flags.StringVar(&u.smtpListen, "smtp-listen", "127.0.0.1:1025", "address of the mail catcher, host:port")
	flags.StringVar(&u.smtpURL, "smtp-url", "", "mail server that delivers mails, instead of the catcher (or SMTP_URL)")
	flags.StringVar(&u.broker, "broker", "", "broker that gets the messages of queue "+relayQueue+", such as amqp://guest:guest@localhost/, with the defaults of posthaste relay")
	u.graceFlag(flags)
	return cmd
}

func runUp(ctx context.Context, a *app, u upFlags) error {
	u.queues, u.concurrency = []string{email.Queue}, 8
	given, exposed, err := u.access()
	if err := cmp.Or(err, exposed); err != nil {
		return err
	}
	if err := u.check(); err != nil {
		return err
	}
	if u.broker != "" {
		if u.relays, err = easyRelay(u.broker); err != nil {
			return misuse(err)
		}
	}
	follows, stopTracing, err := openTracing(ctx, a.log)
	if err != nil {
		return err
	}
	defer stopTracing()
	home, err := openHome(u.data)
	if err != nil {
		return err
	}
	defer home.close()
	a.signal.announce.Store(true)
	if u.reset {
		if err := a.confirm(ctx, u.yes, "", func() (string, error) { return "remove all messages and mails in " + home.dir, nil }); err != nil {
			return err
		}
		if err := resetHome(ctx, home); err != nil {
			return err
		}
	}
	r := &running{}
	defer r.close()
	if err := startAll(ctx, a, &u, home, r); err != nil {
		if ctx.Err() != nil {
			return context.Canceled // a signal
		}
		return err
	}
	api, telemetry, err := newAPI(a, r.engine, u.serverFlags, given, map[string]server.Mount{caughtPath: caughtMail(&u, r.mails)}, follows)
	if err != nil {
		return err
	}
	parts := workerParts{r.engine, a.log, telemetry, follows}
	work := u.worker(parts, r.sinks)
	for i := range r.relays {
		r.relays[i].handle(work, parts)
	}
	return runAll(ctx, a, u, home, r, api, work)
}

// caughtMail returns the pages of caught mails.
func caughtMail(u *upFlags, mails *catcher.Catcher) server.Mount {
	exposed, _ := u.exposed(nil) // it was checked before
	shows := u.shows(exposed)
	return server.Mount{Scope: posthaste.ScopeReadPayload, Handler: mails.Handler(func(r *http.Request) catcher.Place {
		visit := server.VisitOf(r.Context())
		place := catcher.Place{Base: visit.Base, CSRF: visit.CSRF, Nonce: visit.Nonce, SignedIn: visit.SignedIn, Deletes: visit.Allows(posthaste.ScopeOperate), Stopping: visit.Stopping, Fail: visit.Fail}
		if visit.Token != nil {
			place.Viewer = visit.Actor
		}
		if shows {
			place.Home = strings.TrimSuffix(visit.Base, caughtPath) + dashboardPath + "/"
		}
		return place
	}, dashboard.Assets())}
}

// runAll runs the services and stops them in order.
func runAll(ctx context.Context, a *app, u upFlags, home *home, r *running, api *server.Server, work *worker.Worker) error {
	announced := make(chan struct{})
	go func() {
		defer close(announced)
		select {
		case <-work.Started():
			announce(a, u, home, r)
		case <-ctx.Done():
		}
	}()
	err := supervise(ctx, a.log,
		service{"server", func(ctx context.Context) error { return api.Serve(ctx, r.listener, u.grace) }},
		service{"worker", work.Run},
		service{"mail catcher", func(ctx context.Context) error {
			<-ctx.Done()
			return r.mails.Close()
		}},
		service{u.storeName(), func(ctx context.Context) error { return keepRunning(ctx, a.log, u.storeName(), r.database) }},
	)
	r.close() // engine, then its server
	r.undo = nil
	if err == nil && a.format() == asTable {
		fmt.Fprintln(a.stderr, "posthaste: stopped")
	}
	return err
}

// keepRunning restarts the store if its process ends.
func keepRunning(ctx context.Context, log *slog.Logger, name string, store localStore) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-store.Done():
		}
		log.Error(name + " ended unexpectedly; restarting it")
		if err := store.Restart(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("restart after an unexpected end: %w", err)
		}
		log.Info(name + " is running again")
	}
}

// resetHome removes all files that up keeps, and no others.
func resetHome(ctx context.Context, h *home) error {
	if err := cmp.Or(stopLeftRedis(ctx, h), stopLeftNATS(ctx, h)); err != nil {
		return err
	}
	if err := devpg.Remove(ctx, h.dir); err != nil {
		return err
	}
	for _, name := range []string{"mails", "postgres.log", redisDir, redisPortFile, redisLogFile, natsDir, natsPortFile, natsPIDFile, natsLogFile, natsConfFile} {
		if err := os.RemoveAll(h.path(name)); err != nil {
			return dataError("cannot be emptied", err)
		}
	}
	return nil
}
