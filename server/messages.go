package server

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

type sentOne struct {
	ID posthaste.MessageID `json:"id"`
}

type sentMany struct {
	IDs []posthaste.MessageID `json:"ids"`
}

// sendMessages stores one message, or an array of them in one transaction.
func (s *Server) sendMessages(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(w, r, false)
	if err != nil {
		return err
	}
	messages, single, err := wire.ParseMessages(r.PathValue("queue"), body)
	if err != nil {
		return err
	}
	key, err := idempotencyKey(r)
	if err != nil {
		return err
	}
	ids, err := s.send(r, key, body, messages...)
	if err != nil {
		return err
	}
	if single {
		return s.writeJSON(w, http.StatusCreated, sentOne{ids[0]})
	}
	return s.writeJSON(w, http.StatusCreated, sentMany{ids})
}

func (s *Server) showMessage(w http.ResponseWriter, r *http.Request) error {
	id, err := pathMessageID(r)
	if err != nil {
		return err
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	message, err := s.engine.Message(ctx, id)
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, wire.NewMessage(message, true))
}

// The most a listing answers at once, and what it answers unless asked.
const (
	maxListed     = 1000
	defaultListed = 100
)

func (s *Server) listMessages(w http.ResponseWriter, r *http.Request) error {
	q := readQuery(r, "queue", "reference", "key", "term", "state", "limit", "before")
	filter := posthaste.MessageFilter{
		Queue: q.text("queue"), Reference: q.text("reference"), Key: q.text("key"), Term: q.text("term"), State: posthaste.State(q.text("state")),
		Before: q.messageID("before"), Limit: q.int("limit", defaultListed, 1, maxListed),
	}
	if filter.State != "" && !slices.Contains(posthaste.States(), filter.State) {
		q.fail("state", "must be one of "+words(posthaste.States())+", and is "+strconv.Quote(string(filter.State)))
	}
	if q.err != nil {
		return q.err
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	messages, cutAt, err := s.engine.Messages(ctx, filter)
	if err != nil {
		return err
	}
	linkNext(w, r, pageEnd(messages, filter.Limit, cutAt))
	shown := make([]wire.Message, len(messages))
	for i, m := range messages {
		shown[i] = wire.NewMessage(m, false)
	}
	return s.writeJSON(w, http.StatusOK, shown)
}

// pageEnd is where a listing goes on, 0 if there are no more: behind a full
// page, or where the search was cut.
func pageEnd(page []posthaste.MessageInfo, limit int, cutAt posthaste.MessageID) posthaste.MessageID {
	if len(page) >= limit {
		return page[len(page)-1].ID
	}
	return cutAt
}

// linkNext says where a listing goes on, if there may be more. It is relative,
// for a proxy may have put the API elsewhere.
func linkNext(w http.ResponseWriter, r *http.Request, next posthaste.MessageID) {
	if next != 0 {
		query := r.URL.Query()
		query.Set("before", next.String())
		w.Header().Set("Link", "<?"+query.Encode()+`>; rel="next"`)
	}
}

func words[T ~string](all []T) string {
	texts := make([]string, len(all))
	for i, each := range all {
		texts[i] = string(each)
	}
	return strings.Join(texts, ", ")
}
