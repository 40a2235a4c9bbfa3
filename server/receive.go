package server

import (
	"cmp"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// Limits and defaults of receive.
const (
	defaultLease = 30 * time.Second
	maxWait      = 5 * time.Minute
)

// asked is what a request to receive asks for.
type asked struct {
	ref         posthaste.QueueRef
	max         int
	lease, wait time.Duration
}

func parseReceive(queue string, body []byte) (a asked, err error) {
	a = asked{ref: posthaste.QueueRef{Queue: queue}.Normal(), max: 1, lease: defaultLease}
	if len(body) == 0 {
		return a, nil
	}
	o, err := wire.ParseObject("", body)
	if err != nil {
		return a, err
	}
	o.Filled()
	a.ref = posthaste.QueueRef{Queue: queue, Subscription: o.Text("subscription")}.Normal()
	a.max = cmp.Or(o.Int("max", 1, maxClaim), a.max)
	if o.Has("lease") {
		a.lease = readLease(o)
	} else {
		o.Raw("lease")
	}
	if a.wait = o.Duration("wait"); a.wait > maxWait {
		o.Fail("wait", "must be at most %s", maxWait)
	}
	return a, o.Finish()
}

// receive answers with messages. If there are none, it waits for the first one.
func (s *Server) receive(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(w, r, true)
	if err != nil {
		return err
	}
	asked, err := parseReceive(r.PathValue("queue"), body)
	if err != nil {
		return err
	}
	wait := asked.wait
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

	options := s.optionsOf(r)
	deliveries, until, err := s.gatherer.receive(r.Context(), asked.ref, asked.max, asked.lease, wait)
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
	err = s.writeJSON(w, http.StatusOK, wire.Received{Deliveries: shown(deliveries, func(d posthaste.RawDelivery) wire.Delivery {
		view := wire.NewDelivery(d)
		if options.Mode != posthaste.AtMostOnce {
			view.MaxAttempts, view.LeaseUntil = options.Attempts(d.Kind, posthaste.KindOptions{}).MaxAttempts, until.UTC()
		}
		return view
	})})
	var lost *lostAnswer
	if errors.As(err, &lost) {
		// The caller has at most a part of the list, which is not valid JSON.
		s.gatherer.release(deliveries)
		return nil
	}
	return err
}

// keepOptions is the time for which receivers are told the options of a queue from memory.
const keepOptions = 5 * time.Second

// queueOptions caches the options of queues.
type queueOptions struct {
	mu  sync.Mutex
	all map[string]cachedOptions
}

type cachedOptions struct {
	posthaste.QueueOptions
	at time.Time
}

// optionsOf returns the options of the queue in the path, at most keepOptions old; none if they
// cannot be read. It is called before a claim, because an error after it would delay messages.
func (s *Server) optionsOf(r *http.Request) posthaste.QueueOptions {
	name := r.PathValue("queue")
	s.options.mu.Lock()
	cached, ok := s.options.all[name]
	fresh := ok && time.Since(cached.at) < keepOptions
	if cached.at = time.Now(); ok && !fresh {
		s.options.all[name] = cached // others need not read them, too
	}
	s.options.mu.Unlock()
	if fresh {
		return cached.QueueOptions
	}
	queue, err := s.findQueue(r)
	s.options.mu.Lock()
	defer s.options.mu.Unlock()
	if err != nil {
		delete(s.options.all, name)
		return posthaste.QueueOptions{}
	}
	cached.QueueOptions = queue.Options
	if s.options.all == nil {
		s.options.all = map[string]cachedOptions{}
	}
	s.options.all[name] = cached
	return queue.Options
}
