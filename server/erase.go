package server

import (
	"net/http"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// erase erases the content of messages with a term. The term is in the body, because URLs
// are logged.
func (s *Server) erase(w http.ResponseWriter, r *http.Request) error {
	o, err := readObject(w, r)
	if err != nil {
		return err
	}
	term := o.Text("term")
	if term == "" {
		o.Fail("term", "is required: the term of the messages to erase")
	}
	before := bodyCursor(o, wire.ListErasures)
	if err := o.Finish(); err != nil {
		return err
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	found, err := s.engine.Erase(ctx, term, before)
	if err != nil {
		return err
	}
	erased := wire.Erased{Erased: []posthaste.MessageID{}, Pending: []posthaste.MessageID{}, Next: wire.NewIDCursor(wire.ListErasures, found.Next), HasMore: found.Next != 0}
	for _, x := range found.Items {
		if x.Pending {
			erased.Pending = append(erased.Pending, x.MessageID)
		} else {
			erased.Erased = append(erased.Erased, x.MessageID)
		}
	}
	return s.writeJSON(w, http.StatusOK, erased)
}
