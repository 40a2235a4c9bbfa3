package server

import (
	"net/http"

	"github.com/posthaste-mq/posthaste/internal/wire"
)

func (s *Server) listWorkers(w http.ResponseWriter, r *http.Request) error {
	if err := readQuery(r).err; err != nil {
		return err
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	workers, err := s.engine.Workers(ctx)
	if err != nil {
		return err
	}
	shown := make([]wire.Worker, len(workers))
	for i, worker := range workers {
		shown[i] = wire.NewWorker(worker)
	}
	return s.writeJSON(w, http.StatusOK, shown)
}
