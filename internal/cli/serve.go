package cli

import (
	"context"
	"errors"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/server"
	"github.com/posthaste-mq/posthaste/telemetry"
	"github.com/posthaste-mq/posthaste/worker"
)

const defaultListen = "127.0.0.1:8484"

// serving is the flags of the HTTP API.
type serving struct {
	listen string
	token  string
	limits server.Limits
}

func (s *serving) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.listen, "listen", defaultListen, "where the HTTP API listens, host:port")
	cmd.Flags().StringVar(&s.token, "token", "", "the token that callers of the API must send (better as POSTHASTE_TOKEN, which no process list shows)")
	cmd.Flags().Float64Var(&s.limits.AddressRate, "address-rate", 1000, "requests a second that one remote address may make, this machine's excepted; 0 is any number")
	cmd.Flags().Float64Var(&s.limits.TokenRate, "token-rate", 0, "requests a second that one token may make; 0 is any number")
	cmd.Flags().IntVar(&s.limits.MaxWaiting, "max-waiting", 10_000, "how many receivers may wait for messages at the same time")
}

// given is the token that the command was given, if it was.
func (s *serving) given() ([]posthaste.Token, error) {
	if s.token == "" {
		return nil, nil
	}
	token, err := server.NewToken("token", s.token, server.ScopeAdmin)
	return []posthaste.Token{token}, err
}

// exposed is the error of listening where others can reach the server while
// nobody has a token, nil where the address allows it.
func (s *serving) exposed(given []posthaste.Token) (exposed, err error) {
	err = server.CheckListen(s.listen, len(given) > 0)
	if posthaste.CodeOf(err) == posthaste.CodeRefused {
		return misuse(err), nil
	}
	if err != nil {
		return nil, misuse(err)
	}
	return nil, nil
}

// someToken returns refusal unless the database has a token in force.
func someToken(ctx context.Context, store posthaste.Store, refusal error) error {
	if refusal == nil {
		return nil
	}
	tokens, _, err := store.TokensInForce(ctx)
	if err == nil && len(tokens) == 0 {
		return refusal
	}
	return err
}

func newServe(a *app) *cobra.Command {
	var db database
	var serve serving
	var work working
	var withWorker bool
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the HTTP API on a database or a Redis, until stopped",
		Long: `Run the HTTP API on a database or a Redis, and with --worker the built-in sinks too.
The server starts also while the database is away: /readyz answers 503 until it
is there. It asks for a token where one is given with --token, where the
database has or had some ("posthaste token add"), and on every address but this
machine's loopback, where it does not start while there is none.

SIGTERM or Ctrl-C stops it in order: it takes no more connections and gives what
runs --grace to finish. A second signal ends it at once with exit code 130 or 143.`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !withWorker {
				work.queues = nil
			}
			return a.serve(cmd.Context(), db, serve, work)
		},
	}
	cmd.Flags().SortFlags = false
	db.flag(cmd)
	db.pollingFlag(cmd)
	serve.flags(cmd)
	cmd.Flags().BoolVar(&withWorker, "worker", false, "deliver with the built-in sinks in this process too")
	cmd.Flags().StringSliceVarP(&work.queues, "queue", "q", []string{email.Queue}, "with --worker, the queue to work on; may be repeated")
	work.flags(cmd.Flags())
	return cmd
}

func (a *app) serve(ctx context.Context, db database, serve serving, work working) error {
	if err := errors.Join(db.check(), work.check()); err != nil {
		return err
	}
	given, err := serve.given()
	if err != nil {
		return err
	}
	exposed, err := serve.exposed(given)
	if err != nil {
		return err
	}
	follows, stopTracing, err := a.openTracing(ctx)
	if err != nil {
		return err
	}
	defer stopTracing()
	made, closeSinks, err := work.open()
	if err != nil {
		return err
	}
	defer closeSinks()
	store, err := db.openLazily(ctx, a.log)
	if err != nil {
		return err
	}
	defer store.Close()
	if store.Ready(ctx) == nil { // or later, once it is
		if err := someToken(ctx, store, exposed); err != nil {
			return err
		}
		// Before /readyz can say that mails are taken.
		if err := db.prepare(ctx, store); err != nil {
			return err
		}
	}
	listener, err := listenOn("listen", serve.listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	api, metrics, err := a.newAPI(&watched{Store: store, log: a.log}, serve, given, nil, follows)
	if err != nil {
		return err
	}
	a.signal.announce.Store(true)
	opened := make(chan struct{})
	background, run := "upkeep", func(ctx context.Context) error {
		worker.Upkeep(ctx, store, a.log)
		return nil
	}
	if len(made) > 0 {
		background, run = "worker", func(ctx context.Context) error {
			return work.worker(workerParts{store, a.log, metrics, follows}, made).Run(ctx)
		}
	}
	services := []service{
		{"server", func(ctx context.Context) error { return api.Serve(ctx, listener, work.grace) }},
		{background, func(ctx context.Context) error {
			select {
			case <-opened:
				return run(ctx)
			case <-ctx.Done():
				return nil
			}
		}},
		{"database", func(ctx context.Context) error {
			if err := untilReady(ctx, store, a.log); err != nil {
				return err
			}
			if err := someToken(ctx, store, exposed); err != nil {
				return err
			}
			if err := db.prepare(ctx, store); err != nil {
				return err
			}
			close(opened)
			<-ctx.Done()
			return nil
		}},
	}
	a.log.Info("serving", "address", "http://"+listener.Addr().String(), "worker", len(made) > 0)
	return supervise(ctx, a.log, services...)
}

// newAPI makes the server on an engine, with metrics of what runs in this
// process beside it.
func (a *app) newAPI(engine posthaste.Store, s serving, given []posthaste.Token, mount map[string]http.Handler, follows posthaste.Tracing) (*server.Server, *telemetry.Prometheus, error) {
	events, metrics := newMetrics(engine, a.log)
	exposed, err := s.exposed(nil)
	if err != nil {
		return nil, nil, err
	}
	if s.limits.MaxWaiting < 1 {
		return nil, nil, posthaste.Invalidf("max-waiting", "--max-waiting must be above zero, and is %d", s.limits.MaxWaiting)
	}
	api, err := server.New(server.Config{
		Engine: engine, Client: posthaste.NewClient(engine), Logger: a.log, Metrics: metrics, Tracing: follows,
		Tokens: given, RequireToken: exposed != nil, Limits: s.limits, Mount: mount, Version: version(),
	})
	return api, events, err
}
