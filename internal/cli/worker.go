package cli

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
)

func newWorker(a *app) *cobra.Command {
	var db database
	var work working
	var metricsListen string
	cmd := &cobra.Command{
		Use: "worker --queue NAME", Short: "Deliver messages with a built-in sink, until stopped",
		Long: `Deliver the messages of queues that have a built-in sink: for now the queue
emails, by SMTP. The worker waits for a database that is away, and comes back by
itself when it was lost.

SIGTERM or Ctrl-C stops it in order: it takes nothing more, hands back what has
not started and gives the rest --grace to finish. A second signal ends it at
once with exit code 130 or 143; what it held runs elsewhere.`,
		Example: "  posthaste worker --queue emails --smtp-url smtp://user:password@mail.example.com:587",
		Args:    exactly(0, "no arguments; queues are named with --queue"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.work(cmd.Context(), db, work, metricsListen)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringSliceVarP(&work.queues, "queue", "q", nil, "the queue to work on; may be repeated")
	db.flag(cmd)
	db.pollingFlag(cmd)
	work.flags(cmd.Flags())
	cmd.Flags().StringVar(&metricsListen, "metrics-listen", "", "where /metrics and /healthz of this worker are served to everybody who reaches it, host:port; nowhere by default")
	return cmd
}

func (a *app) work(ctx context.Context, db database, work working, metricsListen string) error {
	if len(work.queues) == 0 {
		return &posthaste.Error{Code: posthaste.Invalid, Field: "queue", Message: "no queue is given", Hint: "name one with --queue, for example --queue emails"}
	}
	if err := work.check(); err != nil {
		return err
	}
	made, closeSinks, err := work.open()
	if err != nil {
		return err
	}
	defer closeSinks()
	return a.runWorker(ctx, db, metricsListen, func(ctx context.Context, w workerParts) (runner, error) {
		return work.worker(w, made), db.prepare(ctx, w.engine)
	}, "working", "queues", work.queues)
}

// runner is what a process runs until it is stopped: a worker, or one with sources
// beside it.
type runner interface {
	Run(ctx context.Context) error
	// Started is closed once it runs.
	Started() <-chan struct{}
}

// runWorker runs what build makes, until it is stopped; started and its args are
// logged once it runs.
func (a *app) runWorker(ctx context.Context, db database, metricsListen string, build func(ctx context.Context, w workerParts) (runner, error), started string, args ...any) error {
	follows, stopTracing, err := a.openTracing(ctx)
	if err != nil {
		return err
	}
	defer stopTracing()
	var listener net.Listener
	if metricsListen != "" {
		if listener, err = listenOn("metrics-listen", metricsListen); err != nil {
			return err
		}
		defer listener.Close()
	}
	a.signal.announce.Store(true)
	engine, err := db.wait(ctx, a.log)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer engine.Close()
	parts := workerParts{engine: engine, log: a.log, follows: follows}
	if listener != nil {
		var metrics http.Handler
		parts.metrics, metrics = newMetrics(engine, a.log)
		defer a.serveMetrics(listener, metrics)()
	}
	run, err := build(ctx, parts)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	go a.tellStarted(ctx, run.Started(), started, args...)
	return run.Run(ctx)
}

// serveMetrics serves a worker's metrics until stop is called.
func (a *app) serveMetrics(listener net.Listener, metrics http.Handler) (stop func()) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	server := &http.Server{Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug)}
	go func() { _ = server.Serve(listener) }()
	a.log.Info("metrics", "address", "http://"+listener.Addr().String()+"/metrics")
	return func() { _ = server.Close() }
}

// tellStarted logs once that something runs.
func (a *app) tellStarted(ctx context.Context, started <-chan struct{}, message string, args ...any) {
	select {
	case <-started:
		a.log.Info(message, args...)
	case <-ctx.Done():
	}
}
