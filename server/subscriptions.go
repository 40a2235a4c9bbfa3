package server

import (
	"context"
	"net/http"

	"github.com/posthaste-mq/posthaste/internal/wire"
)

// subscribe adds a subscription. If it exists, the call changes nothing, and fails with
// Conflict if the options differ.
func (s *Server) subscribe(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(w, r, true)
	if err != nil {
		return err
	}
	options, err := wire.ParseSubscriptionOptions(body)
	if err != nil {
		return err
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	if err := s.engine.Subscribe(ctx, r.PathValue("queue"), r.PathValue("subscription"), options); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) unsubscribe(ctx context.Context, r *http.Request) error {
	return s.engine.Unsubscribe(ctx, r.PathValue("queue"), r.PathValue("subscription"))
}
