package server

import (
	"context"
	"net/http"
	"strings"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func (s *Server) queueList() collection[posthaste.QueueInfo, wire.Queue] {
	return collection[posthaste.QueueInfo, wire.Queue]{
		list: "queues", all: func(ctx context.Context, _ *http.Request) ([]posthaste.QueueInfo, error) { return s.engine.Queues(ctx) },
		key: func(q posthaste.QueueInfo) string { return q.Name }, show: always(wire.NewQueue),
	}
}

func (s *Server) showQueue(w http.ResponseWriter, r *http.Request) error {
	return s.writeQueue(w, r, http.StatusOK)
}

// writeQueue answers with the current state of the queue in the path.
func (s *Server) writeQueue(w http.ResponseWriter, r *http.Request, status int) error {
	queue, err := s.findQueue(r)
	if err != nil {
		return err
	}
	if status == http.StatusCreated {
		w.Header().Set("Location", "/v1/queues/"+queue.Name)
	}
	return s.writeJSON(w, status, wire.NewQueue(queue))
}

func (s *Server) findQueue(r *http.Request) (posthaste.QueueInfo, error) {
	ctx, cancel := s.operation(r)
	defer cancel()
	name := r.PathValue("queue")
	queues, err := s.engine.Queues(ctx, name)
	if err != nil {
		return posthaste.QueueInfo{}, err
	}
	for _, q := range queues {
		if q.Name == name {
			return q, nil
		}
	}
	return posthaste.QueueInfo{}, &posthaste.Error{
		Code: posthaste.CodeNotFound, Field: "queue", Message: "there is no queue \"" + name + "\"",
	}
}

// putQueue creates a queue (201). If the queue exists, it changes nothing (200), and is a
// conflict if an option of the request has another value there.
func (s *Server) putQueue(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(w, r, true)
	if err != nil {
		return err
	}
	wanted, err := wire.ParseQueueUpdate(body)
	if err != nil {
		return err
	}
	existing, err := s.findQueue(r)
	if posthaste.CodeOf(err) == posthaste.CodeNotFound {
		if err := s.createQueue(r, wanted.Options); err != nil {
			return err
		}
		return s.writeQueue(w, r, http.StatusCreated)
	}
	if err != nil {
		return err
	}
	if _, differ := wanted.Requested(existing.Options); len(differ) > 0 {
		field, _, _ := strings.Cut(differ[0].Option.Name, ".")
		conflict := *posthaste.ConflictError(existing.Name, differ)
		conflict.Field, conflict.Hint = field, "change options with PATCH /v1/queues/"+existing.Name
		return &conflict
	}
	return s.writeQueue(w, r, http.StatusOK)
}

func (s *Server) createQueue(r *http.Request, options posthaste.QueueOptions) error {
	ctx, cancel := s.operation(r)
	defer cancel()
	return s.engine.CreateQueue(ctx, r.PathValue("queue"), options)
}

// updateQueue changes the options of a queue that the body names.
func (s *Server) updateQueue(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(w, r, false)
	if err != nil {
		return err
	}
	update, err := wire.ParseQueueUpdate(body)
	if err != nil {
		return err
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	if err := s.engine.UpdateQueue(ctx, r.PathValue("queue"), update); err != nil {
		return err
	}
	return s.writeQueue(w, r, http.StatusOK)
}

func (s *Server) dropQueue(ctx context.Context, r *http.Request) error {
	return s.engine.DropQueue(ctx, r.PathValue("queue"), posthaste.DropOptions{})
}

func (s *Server) purgeQueue(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := s.operation(r)
	defer cancel()
	purged, err := s.engine.PurgeQueue(ctx, r.PathValue("queue"))
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, wire.PurgedAll{Subscriptions: wire.NewPurged(purged)})
}
