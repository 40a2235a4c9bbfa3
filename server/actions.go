package server

import (
	"net/http"
	"strconv"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// listActions lists the recorded actions of operators, newest first.
func (s *Server) listActions(w http.ResponseWriter, r *http.Request) error {
	q := readQuery(r, "queue", "message", "limit", "cursor")
	filter := posthaste.ActionFilter{
		Queue: q.text("queue"), MessageID: q.messageID("message"), Before: int64(idCursorOf(q, wire.ListActions)), Limit: q.int("limit", defaultListed, 1, maxListed),
	}
	if q.err != nil {
		return q.err
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	actions, err := s.engine.Actions(ctx, filter)
	if err != nil {
		return err
	}
	next := ""
	if len(actions) == filter.Limit {
		next = strconv.FormatInt(actions[len(actions)-1].ID, 10)
	}
	return s.writeJSON(w, http.StatusOK, newListed(wire.ListActions, actions, next, wire.NewAction))
}
