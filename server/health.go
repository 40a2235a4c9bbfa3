package server

import (
	"net/http"

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

// doctor lists the problems that the store's checks found.
func (s *Server) doctor(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := s.operation(r)
	defer cancel()
	found, err := s.engine.Doctor(ctx)
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, wire.NewFindings(found, wire.HTTP))
}
