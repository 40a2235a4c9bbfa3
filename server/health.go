package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

type health struct {
	Status string `json:"status"`
}

// healthz reports that the process is running, regardless of the store.
func (s *Server) healthz(w http.ResponseWriter, r *http.Request) error {
	return s.writeJSON(w, http.StatusOK, health{"ok"})
}

// readyz reports whether the store is usable.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) error {
	if err := s.ready.check(r.Context()); err != nil {
		if posthaste.CodeOf(err) == "" {
			err = notReady(err)
		}
		// Not logged here: the process that runs the engine logs the change.
		return &httpError{status: http.StatusServiceUnavailable, err: err, asked: true}
	}
	return s.writeJSON(w, http.StatusOK, health{"ready"})
}

func (s *Server) showMetrics(w http.ResponseWriter, r *http.Request) error {
	s.metrics.ServeHTTP(w, r)
	return nil
}

// findingList lists the problems that the store's checks found, faults first.
func (s *Server) findingList() collection[posthaste.Finding, wire.Finding] {
	return collection[posthaste.Finding, wire.Finding]{
		list: "doctor", all: func(ctx context.Context, _ *http.Request) ([]posthaste.Finding, error) { return s.engine.Doctor(ctx) },
		key: func(f posthaste.Finding) string {
			rank := "1"
			if f.Fault {
				rank = "0"
			}
			return strings.Join([]string{rank, f.Check, f.Queue, f.Subscription, f.Message}, "\x00")
		},
		show: always(func(f posthaste.Finding) wire.Finding { return wire.NewFinding(f, wire.HTTP) }),
	}
}

// workerList lists the registered workers.
func (s *Server) workerList() collection[posthaste.WorkerStatus, wire.Worker] {
	return collection[posthaste.WorkerStatus, wire.Worker]{
		list: "workers", all: func(ctx context.Context, _ *http.Request) ([]posthaste.WorkerStatus, error) {
			return s.engine.Workers(ctx)
		},
		key: func(w posthaste.WorkerStatus) string { return fmt.Sprintf("%019d", w.ID) }, show: always(wire.NewWorker),
	}
}

// tokenList lists the tokens in the store, without their secrets.
func (s *Server) tokenList() collection[posthaste.Token, wire.Token] {
	return collection[posthaste.Token, wire.Token]{
		list: "tokens", all: func(ctx context.Context, _ *http.Request) ([]posthaste.Token, error) { return s.engine.Tokens(ctx) },
		key: func(t posthaste.Token) string { return t.Name }, show: always(wire.NewToken),
	}
}
