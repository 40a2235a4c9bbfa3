package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func (s *Server) listDeadLetters(w http.ResponseWriter, r *http.Request) error {
	q := readQuery(r, "queue", "id", "limit", "before")
	filter := posthaste.DeadLetterFilter{
		Queue: q.text("queue"), Before: q.messageID("before"), Limit: q.int("limit", defaultListed, 1, maxListed),
	}
	for _, text := range q.values["id"] {
		var id posthaste.MessageID
		if id.UnmarshalText([]byte(text)) != nil {
			q.fail("id", "must be a message id, which is a positive decimal number, and is "+strconv.Quote(text))
		}
		filter.IDs = append(filter.IDs, id)
	}
	if q.err != nil {
		return q.err
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	dead, err := s.engine.DeadLetters(ctx, filter)
	if err != nil {
		return err
	}
	shown := make([]wire.DeadLetter, len(dead))
	for i, d := range dead {
		shown[i] = wire.NewDeadLetter(d)
	}
	return s.writeJSON(w, http.StatusOK, shown)
}

// decided tells which of the ids asked for were dead letters and which not.
type decided struct {
	IDs      []posthaste.MessageID `json:"ids"`
	NotFound []posthaste.MessageID `json:"not_found"`
}

// decideDeadLetters replays or discards the dead letters of the body and says
// in their record who asked. Ids that are no dead letters are told; if none
// is one, that is 404.
func (s *Server) decideDeadLetters(decide func(context.Context, string, ...posthaste.MessageID) ([]posthaste.MessageID, error)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := readQuery(r).err; err != nil {
			return err
		}
		body, err := readJSON(w, r, false)
		if err != nil {
			return err
		}
		ids, err := parseIDs(body)
		if err != nil {
			return err
		}
		ctx, cancel := s.operation(r)
		defer cancel()
		done, err := decide(ctx, caller(r), ids...)
		if err != nil {
			return err
		}
		answer := decided{IDs: done, NotFound: []posthaste.MessageID{}}
		for _, id := range ids {
			if !slices.Contains(done, id) {
				answer.NotFound = append(answer.NotFound, id)
			}
		}
		if len(done) == 0 {
			texts := make([]string, len(ids))
			for i, id := range ids {
				texts[i] = id.String()
			}
			return &httpError{ids: texts, err: &posthaste.Error{
				Code: posthaste.NotFound, Field: "ids", Message: "none of the ids is a dead letter: " + some(texts), Hint: "GET /v1/dead-letters lists them",
			}}
		}
		return s.writeJSON(w, http.StatusOK, answer)
	}
}

// parseIDs reads {"ids":["1","2"]}, without repetitions.
func parseIDs(body []byte) ([]posthaste.MessageID, error) {
	o, err := wire.ParseObject("", body)
	if err != nil {
		return nil, err
	}
	given := o.Has("ids")
	texts := o.Texts("ids")
	if given && (len(texts) == 0 || len(texts) > maxListed) {
		o.Fail("ids", "must hold 1 to %d ids, and holds %d", maxListed, len(texts))
	}
	if !given {
		o.Fail("ids", "is required: an array of message ids")
	}
	var ids []posthaste.MessageID
	for i, text := range texts {
		var id posthaste.MessageID
		if id.UnmarshalText([]byte(text)) != nil {
			o.Fail(fmt.Sprintf("ids[%d]", i), "must be a message id, which is a positive decimal number in a string, and is %q", text)
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, o.Finish()
}
