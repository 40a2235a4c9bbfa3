package server

import (
	"errors"
	"net/http"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// Limits and defaults of receive.
const (
	defaultLease = 30 * time.Second
	maxLease     = 12 * time.Hour
	maxWait      = 5 * time.Minute
)

// receive answers with messages. If there are none, it waits for the first one.
func (s *Server) receive(w http.ResponseWriter, r *http.Request) error {
	q := readQuery(r, "subscription", "max", "lease", "wait")
	ref := posthaste.QueueRef{Queue: r.PathValue("queue"), Subscription: q.text("subscription")}.Normal()
	max := q.int("max", 1, 1, maxClaim)
	lease := q.duration("lease", defaultLease, maxLease, false)
	wait := q.duration("wait", 0, maxWait, true)
	if q.err != nil {
		return q.err
	}
	if err := refuseBody(r); err != nil {
		return err
	}
	if wait > 0 {
		if err := s.waiting.enter(); err != nil {
			return err
		}
		defer s.waiting.leave()
	}
	// No read deadline from here on: net/http would report it in the same way as a caller
	// that closes the connection.
	controller := http.NewResponseController(w)
	_ = controller.SetReadDeadline(time.Time{})
	_ = controller.SetWriteDeadline(time.Time{})

	deliveries, err := s.gatherer.receive(r.Context(), ref, max, lease, wait)
	if err != nil {
		return err
	}
	if err = r.Context().Err(); err == nil && wait > 0 {
		err = s.stillAuthorized(r)
	}
	if err != nil {
		s.gatherer.release(deliveries)
		return err
	}
	err = s.writeJSON(w, http.StatusOK, shown(deliveries, wire.NewDelivery))
	var lost *lostAnswer
	if errors.As(err, &lost) {
		// The caller has at most a part of the list, which is not valid JSON.
		s.gatherer.release(deliveries)
		return nil
	}
	return err
}
