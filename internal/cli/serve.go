package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/server"
)

const defaultListen = "127.0.0.1:8484"

// serving is the flags of the HTTP API.
type serving struct {
	listen string
	token  string
}

func (s *serving) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.listen, "listen", defaultListen, "where the HTTP API listens, host:port")
	cmd.Flags().StringVar(&s.token, "token", "", "the token that callers of the API must send (better as POSTHASTE_TOKEN, which no process list shows)")
}

// tokens checks listen and token together.
func (s *serving) tokens() ([]server.Token, error) {
	var tokens []server.Token
	if s.token != "" {
		token, err := server.NewToken("token", s.token, server.ScopeAdmin)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, token)
	}
	if err := server.CheckListen(s.listen, len(tokens) > 0); err != nil {
		return nil, misuse(err)
	}
	return tokens, nil
}

// listenOn opens a port, or says which flag chooses another.
func listenOn(flag, address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, portError(flag, address, err)
	}
	return listener, nil
}

func portError(flag, address string, err error) error {
	e := &posthaste.Error{Code: posthaste.Conflict, Field: flag, Message: fmt.Sprintf("cannot listen on %s: %v", address, err),
		Hint: "choose another address with --" + flag, Cause: err}
	var reason syscall.Errno
	if errors.As(err, &reason) {
		e.Message = fmt.Sprintf("cannot listen on %s: %v", address, reason)
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		e.Message = address + " is taken by another program"
		e.Hint = "stop that program, or choose another address with --" + flag
	}
	return e
}

func newServe(a *app) *cobra.Command {
	var db database
	var serve serving
	var work working
	var withWorker bool
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the HTTP API on a database, until stopped",
		Long: `Run the HTTP API on a database, and with --worker the built-in sinks too.
The server starts also while the database is away: /readyz answers 503 until it
is there. Without a token it only listens on this machine's loopback address.

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
	tokens, err := serve.tokens()
	if err != nil {
		return err
	}
	made, closeSinks, err := work.open()
	if err != nil {
		return err
	}
	defer closeSinks()
	listener, err := listenOn("listen", serve.listen)
	if err != nil {
		return err
	}
	defer listener.Close()

	store, err := postgres.Open(ctx, db.url, db.options(postgres.Logger(a.log), postgres.Lazily())...)
	if err != nil {
		return err
	}
	defer store.Close()
	api, metrics, err := newAPI(&watched{Engine: store, log: a.log}, tokens, a.log, nil)
	if err != nil {
		return err
	}
	a.signal.announce.Store(true)
	opened := make(chan struct{})
	services := []service{
		{"server", func(ctx context.Context) error { return api.Serve(ctx, listener, work.grace) }},
		{"database", func(ctx context.Context) error {
			if err := untilReady(ctx, store, a.log); err != nil {
				return err
			}
			close(opened)
			<-ctx.Done()
			return nil
		}},
	}
	if len(made) > 0 {
		run := service{"worker", func(ctx context.Context) error {
			select {
			case <-opened:
				return work.worker(store, made, a.log, metrics).Run(ctx)
			case <-ctx.Done():
				return nil
			}
		}}
		services = []service{services[0], run, services[1]}
	}
	a.log.Info("serving", "address", "http://"+listener.Addr().String(), "worker", len(made) > 0)
	return supervise(ctx, a.log, services...)
}

// newAPI makes the server on an engine, with metrics of what runs in this
// process beside it.
func newAPI(engine posthaste.Engine, tokens []server.Token, log *slog.Logger, mount map[string]http.Handler) (*server.Server, posthaste.Telemetry, error) {
	telemetry, metrics := newMetrics(engine, log)
	api, err := server.New(server.Config{
		Engine: engine, Client: posthaste.NewClient(engine), Logger: log, Metrics: metrics,
		Tokens: tokens, Mount: mount, Version: version(),
	})
	return api, telemetry, err
}
