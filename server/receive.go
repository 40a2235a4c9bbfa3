package server

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// Bounds and defaults of receive.
const (
	defaultLease = 30 * time.Second
	maxLease     = 12 * time.Hour
	maxWait      = 5 * time.Minute
)

// receive hands out messages, waiting for the first one if there are none.
func (s *Server) receive(w http.ResponseWriter, r *http.Request) error {
	q := readQuery(r, "subscription", "max", "lease", "wait")
	ref := posthaste.QueueRef{Queue: r.PathValue("queue"), Subscription: cmp.Or(q.text("subscription"), posthaste.DefaultSubscription)}
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
	// From here on only the caller's leaving may end the request's reading
	// side: a deadline on it would look the same.
	controller := http.NewResponseController(w)
	_ = controller.SetReadDeadline(time.Time{})
	_ = controller.SetWriteDeadline(time.Time{})

	deliveries, err := s.gatherer.receive(r.Context(), ref, max, lease, wait)
	if err != nil {
		return err
	}
	if err = r.Context().Err(); err == nil && wait > 0 {
		err = s.stillAuthorized(r, ScopeReceive)
	}
	if err != nil {
		s.gatherer.release(deliveries)
		return err
	}
	shown := make([]wire.Delivery, len(deliveries))
	for i, d := range deliveries {
		shown[i] = wire.NewDelivery(d)
	}
	err = s.writeJSON(w, http.StatusOK, shown)
	var lost *lostAnswer
	if errors.As(err, &lost) {
		// Whoever asked has at most a part of the list, which is no JSON.
		s.gatherer.release(deliveries)
		return nil
	}
	return err
}
