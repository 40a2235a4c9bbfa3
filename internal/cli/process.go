package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// runner runs until the process is stopped: a worker, or a worker and sources.
type runner interface {
	Run(ctx context.Context) error
	// Started is closed when the runner is running.
	Started() <-chan struct{}
}

// runWorker runs the runner that build returns until the process is stopped. It logs started
// with args when the runner is running.
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

// serveMetrics serves the metrics of a worker until stop is called. If that fails, the
// worker continues, because deliveries do not need metrics.
func (a *app) serveMetrics(listener net.Listener, metrics http.Handler) (stop func()) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	server := &http.Server{Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug)}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("the metrics are no longer served; restart the worker to serve them again", "address", listener.Addr().String(), "error", err)
		}
	}()
	a.log.Info("metrics", "address", "http://"+listener.Addr().String()+"/metrics")
	return func() { _ = server.Close() }
}

// tellStarted logs message when started is closed.
func (a *app) tellStarted(ctx context.Context, started <-chan struct{}, message string, args ...any) {
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
		e.Message = address + " is taken by another program"
		e.Hint = "stop that program, or choose another address with --" + flag
	}
	return e
}
