package server

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// readyTime bounds the question to the store: readiness has to turn within
// 5 s of losing it, also where nothing answers at all.
const readyTime = 2 * time.Second

// readiness asks the store once for all who ask at the same time, so that an
// open endpoint cannot be made to flood it.
type readiness struct {
	engine posthaste.Engine
	mu     sync.Mutex
	asking *readyCheck
}

type readyCheck struct {
	done chan struct{}
	err  error
}

func (c *readiness) check(ctx context.Context) error {
	c.mu.Lock()
	asked := c.asking
	if asked == nil {
		asked = &readyCheck{done: make(chan struct{})}
		c.asking = asked
		go c.ask(asked)
	}
	c.mu.Unlock()
	select {
	case <-asked.done:
		return asked.err
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(readyTime + time.Second/2):
		// The engine did not even obey its context: leave that question alone,
		// so that the next one can find the store well again.
		c.mu.Lock()
		if c.asking == asked {
			c.asking = nil
		}
		c.mu.Unlock()
		return &posthaste.Error{Code: posthaste.Unavailable, Message: "the store does not answer", Hint: "check that it runs and can be reached"}
	}
}

func (c *readiness) ask(asked *readyCheck) {
	ctx, cancel := context.WithTimeout(context.Background(), readyTime)
	defer cancel()
	asked.err = c.engine.Ready(ctx)
	c.mu.Lock()
	if c.asking == asked {
		c.asking = nil
	}
	c.mu.Unlock()
	close(asked.done)
}

type health struct {
	Status string `json:"status"`
}

// healthz says that the program runs, whatever the store does.
func (s *Server) healthz(w http.ResponseWriter, r *http.Request) error {
	return s.writeJSON(w, http.StatusOK, health{"ok"})
}

// readyz says whether the store can be used now.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) error {
	if err := s.ready.check(r.Context()); err != nil {
		if code := posthaste.CodeOf(err); code == "" {
			err = &posthaste.Error{Code: posthaste.Unavailable, Message: "the store does not answer", Hint: "check that it runs and can be reached", Cause: err}
		}
		// What was asked for is the answer; whoever runs the engine logs the change.
		return &httpError{status: http.StatusServiceUnavailable, err: err, asked: true}
	}
	return s.writeJSON(w, http.StatusOK, health{"ready"})
}

func (s *Server) showMetrics(w http.ResponseWriter, r *http.Request) error {
	s.metrics.ServeHTTP(w, r)
	return nil
}
