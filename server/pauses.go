package server

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// change pauses or resumes something.
type change struct {
	do func(context.Context, posthaste.Pausable, posthaste.PauseOptions) error
	// pauses says that the body may have a reason and an end.
	pauses bool
}

func (s *Server) pauses() change { return change{s.engine.Pause, true} }

func (s *Server) resumes() change {
	return change{func(ctx context.Context, what posthaste.Pausable, _ posthaste.PauseOptions) error {
		return s.engine.Resume(ctx, what)
	}, false}
}

// pauseKey pauses or resumes a key of a queue.
func (s *Server) pauseKey(c change) handler {
	return s.pauseWord(c, "key", func(queue, key string) posthaste.Pausable { return posthaste.OfKey{Queue: queue, Key: key} })
}

// pauseKind pauses or resumes a kind of messages of a queue.
func (s *Server) pauseKind(c change) handler {
	return s.pauseWord(c, "kind", func(queue, kind string) posthaste.Pausable { return posthaste.OfKind{Queue: queue, Kind: kind} })
}

// pauseWord pauses or resumes what a word names. The word is in the body, because it may be any
// text, and a path cannot contain every text ("/", "..").
func (s *Server) pauseWord(c change, name string, what func(queue, word string) posthaste.Pausable) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		word, options, err := c.body(w, r, name)
		if err != nil {
			return err
		}
		return s.pauseQueued(w, r, c, what(r.PathValue("queue"), word), options)
	}
}

// body reads the body of a request, in which the field name is required; "" for no field.
func (c change) body(w http.ResponseWriter, r *http.Request, name string) (word string, options posthaste.PauseOptions, err error) {
	body, err := readJSON(w, r, name == "")
	if err != nil || len(body) == 0 {
		return "", options, err
	}
	o, err := wire.ParseObject("", body)
	if err != nil {
		return "", options, err
	}
	if name != "" {
		if word = o.Text(name); word == "" {
			o.Fail(name, "is required")
		}
	}
	if c.pauses {
		options = o.PauseOptions(time.Now())
	}
	return word, options, o.Finish()
}

// pauseQueue pauses a queue.
func (s *Server) pauseQueue(w http.ResponseWriter, r *http.Request) error {
	_, options, err := s.pauses().body(w, r, "")
	if err != nil {
		return err
	}
	return s.pauseQueued(w, r, s.pauses(), posthaste.OfQueue(r.PathValue("queue")), options)
}

// resumeQueue resumes a queue.
func (s *Server) resumeQueue(w http.ResponseWriter, r *http.Request) error {
	return s.pauseQueued(w, r, s.resumes(), posthaste.OfQueue(r.PathValue("queue")), posthaste.PauseOptions{})
}

// pauseQueued pauses or resumes a queue, a key or a kind, and answers with the queue's new state.
func (s *Server) pauseQueued(w http.ResponseWriter, r *http.Request, c change, what posthaste.Pausable, options posthaste.PauseOptions) error {
	ctx, cancel := s.operation(r)
	defer cancel()
	if err := c.do(ctx, what, options); err != nil {
		return err
	}
	return s.writeQueue(w, r, http.StatusOK)
}

// pauseSchedule pauses a schedule and answers with it.
func (s *Server) pauseSchedule(w http.ResponseWriter, r *http.Request) error {
	_, options, err := s.pauses().body(w, r, "")
	if err != nil {
		return err
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	if err := s.engine.Pause(ctx, posthaste.OfSchedule(r.PathValue("schedule")), options); err != nil {
		return err
	}
	return s.showSchedule(w, r)
}

// resumeSchedule resumes a schedule and answers with it.
func (s *Server) resumeSchedule(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := s.operation(r)
	defer cancel()
	if err := s.engine.Resume(ctx, posthaste.OfSchedule(r.PathValue("schedule"))); err != nil {
		return err
	}
	return s.showSchedule(w, r)
}

// listPauses lists pauses, of one queue or of all, the last one first.
func (s *Server) listPauses(w http.ResponseWriter, r *http.Request) error {
	q := readQuery(r, "limit", "cursor")
	filter := posthaste.PauseFilter{Queue: r.PathValue("queue"), Before: int64(idCursorOf(q, wire.ListPauses)), Limit: q.int("limit", defaultListed, 1, maxListed)}
	if q.err != nil {
		return q.err
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	pauses, err := s.engine.Pauses(ctx, filter)
	if err != nil {
		return err
	}
	next := ""
	if len(pauses) == filter.Limit {
		next = strconv.FormatInt(pauses[len(pauses)-1].ID, 10)
	}
	return s.writeJSON(w, http.StatusOK, newListed(wire.ListPauses, pauses, next, wire.NewPause))
}
