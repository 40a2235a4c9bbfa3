package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/telemetry"
	"github.com/posthaste-mq/posthaste/worker"
)

// runner runs until the process is stopped: a worker, or a worker and sources.
type runner interface {
	Run(ctx context.Context) error
	// Started is closed when the runner is running.
	Started() <-chan struct{}
}

// runWorker runs the runner that build returns until the process is stopped. It logs started
// with args when the runner is running.
func runWorker(ctx context.Context, a *app, db database, metricsListen string, build func(ctx context.Context, w workerParts) (runner, error), started string, args ...any) error {
	follows, stopTracing, err := openTracing(ctx, a.log)
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
	engine, err := db.openLazily(ctx, a.log)
	if err != nil {
		return err
	}
	defer engine.Close()
	parts := workerParts{engine: engine, log: a.log, follows: follows}
	if listener != nil { // before the database is ready, so that nothing restarts a process that waits for it
		var metrics http.Handler
		parts.metrics, metrics = newMetrics(engine, a.log)
		defer serveMetrics(a, listener, metrics)()
	}
	var run runner
	if err = untilReady(ctx, engine, a.log); err == nil {
		run, err = build(ctx, parts)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	go logStarted(ctx, a, run.Started(), started, args...)
	return run.Run(ctx)
}

// serveMetrics serves the metrics of a worker until stop is called. If that fails, the
// worker continues, because deliveries do not need metrics.
func serveMetrics(a *app, listener net.Listener, metrics http.Handler) (stop func()) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"status":"ok"}`+"\n") // as the server of the HTTP API
	})
	server := &http.Server{Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug)}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("serving metrics failed; restart the worker to serve them again", "address", listener.Addr().String(), "error", err)
		}
	}()
	a.log.Info("metrics", "address", "http://"+listener.Addr().String()+"/metrics")
	return func() { _ = server.Close() }
}

// tellStarted logs message when started is closed.
func logStarted(ctx context.Context, a *app, started <-chan struct{}, message string, args ...any) {
	select {
	case <-started:
		a.log.Info(message, args...)
	case <-ctx.Done():
	}
}

// listenOn opens a port. Its errors name the flag that selects another port.
func listenOn(flag, address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, portError(flag, address, err)
	}
	return listener, nil
}

func portError(flag, address string, err error) error {
	e := &posthaste.Error{Code: posthaste.CodeConflict, Field: flag, Message: fmt.Sprintf("cannot listen on %s: %v", address, err),
		Hint: "choose another address with --" + flag, Cause: err}
	var reason syscall.Errno
	if errors.As(err, &reason) {
		e.Message = fmt.Sprintf("cannot listen on %s: %v", address, reason)
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		e.Message = address + " is in use by another program"
		e.Hint = "stop that program, or choose another address with --" + flag
	}
	return e
}

// workerParts are the parts of a program's worker.
type workerParts struct {
	engine  posthaste.Store
	log     *slog.Logger
	metrics *telemetry.Prometheus // nil if metrics are not served
	follows posthaste.Tracing
}

// expect initializes the counters of the queues that a worker reads.
func (w workerParts) expect(run *worker.Worker) {
	if w.metrics != nil {
		w.metrics.Expect(run.Reads()...)
	}
}

// broker adds the state of a broker to the metrics.
func (w workerParts) broker(queue, address string, away func() bool) {
	if w.metrics != nil {
		w.metrics.Broker(queue, address, away)
	}
}

func (w workerParts) telemetry() posthaste.Telemetry {
	if w.metrics == nil {
		return posthaste.NoTelemetry{}
	}
	return w.metrics
}

// portErrorOf is portError if err is a network error, or else err.
func portErrorOf(flag, address string, err error) error {
	_, op := errors.AsType[*net.OpError](err)
	_, dns := errors.AsType[*net.DNSError](err)
	_, addr := errors.AsType[*net.AddrError](err)
	if op || dns || addr {
		return portError(flag, address, err)
	}
	return err
}

// reachable returns an address at which clients on this machine reach a server that listens
// on address.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	switch ip := net.ParseIP(host); {
	case host == "" || ip != nil && ip.IsUnspecified() && ip.To4() != nil:
		host = "127.0.0.1"
	case ip != nil && ip.IsUnspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}
