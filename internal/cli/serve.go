package cli

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/server"
	"github.com/posthaste-mq/posthaste/telemetry"
)

const defaultListen = "127.0.0.1:8484"

// serverFlags holds the flags of the HTTP API.
type serverFlags struct {
	listen string
	token  string
	limits server.Limits
	pageFlags
}

func (s *serverFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.listen, "listen", defaultListen, "address of the HTTP API, host:port")
	cmd.Flags().StringVar(&s.token, "token", "", "token that clients must send (prefer POSTHASTE_TOKEN, which process lists do not show)")
	cmd.Flags().Float64Var(&s.limits.AddressRate, "address-rate", 1000, "maximum requests per second of one remote address, except this machine; 0 is unlimited")
	cmd.Flags().Float64Var(&s.limits.TokenRate, "token-rate", 0, "maximum requests per second of one token; 0 is unlimited")
	cmd.Flags().IntVar(&s.limits.MaxWaiting, "max-waiting", 10_000, "maximum number of receivers that wait for messages")
	s.pageFlags.flags(cmd.Flags())
}

// given returns the token of the flag, if it is set.
func (s *serverFlags) given() ([]posthaste.Token, error) {
	if s.token == "" {
		return nil, nil
	}
	token, err := server.NewToken("token", s.token, server.ScopeAdmin)
	return []posthaste.Token{token}, err
}

// exposed returns the error of listening on an address that other machines can reach
// without requiring a token. It is nil for loopback addresses, or if a token is given.
func (s *serverFlags) exposed(given []posthaste.Token) (exposed, err error) {
	err = server.CheckListen(s.listen, len(given) > 0)
	if posthaste.CodeOf(err) == posthaste.CodeRefused {
		return misuse(err), nil
	}
	if err != nil {
		return nil, misuse(err)
	}
	return nil, nil
}

// access returns the results of given and exposed.
func (s *serverFlags) access() (given []posthaste.Token, exposed, err error) {
	if given, err = s.given(); err == nil {
		exposed, err = s.exposed(given)
	}
	return given, exposed, err
}

// someToken returns refusal unless the store has a valid token.
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
	var serve serverFlags
	var work sinkFlags
	var withWorker bool
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the HTTP API",
		Long: `Run the HTTP API on PostgreSQL, Redis or NATS, and with --worker also the built-in sinks.
The server starts even if the database is unavailable; /readyz then answers 503.
It requires a token if --token is set, if a token was ever added to the database
("posthaste token add"), or if it listens on an address other than loopback. On such
an address it does not start without a token.

SIGTERM or Ctrl-C stops it gracefully: it accepts no more connections and waits up to
--grace for running requests. A second signal stops it at once with exit code 130 or 143.`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !withWorker {
				work.queues = nil
			}
			return serveAPI(cmd.Context(), a, db, serve, work)
		},
	}
	cmd.Flags().SortFlags = false
	db.flag(cmd)
	needsStore(cmd, "a server offers the API of a database")
	db.pollingFlag(cmd)
	serve.flags(cmd)
	cmd.Flags().BoolVar(&withWorker, "worker", false, "also deliver with the built-in sinks")
	cmd.Flags().StringSliceVarP(&work.queues, "queue", "q", []string{email.Queue}, "with --worker, the queue to deliver; may be repeated")
	work.flags(cmd.Flags())
	return cmd
}

func serveAPI(ctx context.Context, a *app, db database, serve serverFlags, work sinkFlags) error {
	if err := errors.Join(db.check(), work.check()); err != nil {
		return err
	}
	serve.environment = db.environment
	given, exposed, err := serve.access()
	if err != nil {
		return err
	}
	follows, stopTracing, err := openTracing(ctx, a.log)
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
	setUp := func(ctx context.Context) error {
		if err := someToken(ctx, store, exposed); err != nil {
			return err
		}
		return db.prepare(ctx, store)
	}
	if store.Ready(ctx) == nil { // else the service "database" does it
		if err := setUp(ctx); err != nil { // before /readyz answers 200, mails must be accepted
			return err
		}
	}
	listener, err := listenOn("listen", serve.listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	api, metrics, err := newAPI(a, &watched{Store: store, log: a.log}, serve, given, nil, follows)
	if err != nil {
		return err
	}
	a.signal.announce.Store(true)
	ready := make(chan struct{})
	background := work.background(workerParts{store, a.log, metrics, follows}, made)
	a.log.Info("serving", "address", "http://"+listener.Addr().String(), "worker", len(made) > 0)
	return supervise(ctx, a.log,
		service{"server", func(ctx context.Context) error { return api.Serve(ctx, listener, work.grace) }},
		startWhen(ready, background),
		service{"database", func(ctx context.Context) error {
			if err := untilReady(ctx, store, a.log); err != nil {
				return err
			}
			return setUpAndSignal(ctx, setUp, ready)
		}})
}

// setUpAndSignal calls setUp, closes ready, and waits until ctx is cancelled.
func setUpAndSignal(ctx context.Context, setUp func(context.Context) error, ready chan<- struct{}) error {
	if err := setUp(ctx); err != nil {
		return err
	}
	close(ready)
	<-ctx.Done()
	return nil
}

// startWhen returns a service that starts s when ready is closed.
func startWhen(ready <-chan struct{}, s service) service {
	return service{s.name, func(ctx context.Context) error {
		select {
		case <-ready:
			return s.run(ctx)
		case <-ctx.Done():
			return nil
		}
	}}
}

// newAPI returns the server on an engine, and the telemetry of this process, which /metrics
// serves.
func newAPI(a *app, engine posthaste.Store, s serverFlags, given []posthaste.Token, mount map[string]server.Mount, follows posthaste.Tracing) (*server.Server, *telemetry.Prometheus, error) {
	events, metrics := newMetrics(engine, a.log)
	exposed, err := s.exposed(nil)
	if err != nil {
		return nil, nil, err
	}
	for flag, rate := range map[string]float64{"address-rate": s.limits.AddressRate, "token-rate": s.limits.TokenRate} {
		if !(rate >= 0 && rate <= 1e9) {
			return nil, nil, posthaste.Invalidf(flag, "--%s must be 0 to 1e9, got %v", flag, rate)
		}
	}
	if s.limits.MaxWaiting < 1 {
		return nil, nil, posthaste.Invalidf("max-waiting", "--max-waiting must be above zero, got %d", s.limits.MaxWaiting)
	}
	pages, err := s.pages()
	if err != nil {
		return nil, nil, err
	}
	if s.shows(exposed) {
		mount, pages.Home = s.mount(engine, mount), dashboardPath
	}
	api, err := server.New(server.Config{
		Engine: engine, Client: posthaste.NewClient(engine), Logger: a.log, Metrics: metrics, Tracing: follows,
		Tokens: given, RequireToken: exposed != nil, Limits: s.limits, Mount: mount, Pages: pages, Version: version(),
	})
	return api, events, err
}

// watched logs changes of the store's readiness, as Ready observes them.
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
