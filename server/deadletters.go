package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func (s *Server) listDeadLetters(w http.ResponseWriter, r *http.Request) error {
	filter, err := parseDeadQuery(r)
	if err != nil {
		return err
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	dead, err := s.engine.DeadLetters(ctx, filter)
	if err != nil {
		return err
	}
	linkNext(w, r, dead.Next)
	return s.writeJSON(w, http.StatusOK, shown(dead.Items, wire.NewDeadLetter))
}

// parseDeadQuery reads the filter of a list: ?id=1&id=2, or deadFields and a page.
func parseDeadQuery(r *http.Request) (posthaste.DeadLetterFilter, error) {
	q := readQuery(r, append([]string{"id", "limit", "before"}, deadFields...)...)
	filter := deadFilter(q.text, q.time)
	filter.Before, filter.Limit = q.messageID("before"), q.int("limit", defaultListed, 1, maxListed)
	for _, text := range q.values["id"] {
		var id posthaste.MessageID
		if id.UnmarshalText([]byte(text)) != nil {
			q.fail("id", "must be a message id, which is a positive decimal number, got "+strconv.Quote(text))
		}
		filter.IDs = append(filter.IDs, id)
	}
	return filter, q.err
}

// deadFields are the fields of a filter, in the query and in bodies.
var deadFields = []string{"queue", "subscription", "kind", "key", "reference", "term", "error", "died_from", "died_before"}

func deadFilter(text func(name string) string, at func(name string) time.Time) posthaste.DeadLetterFilter {
	return posthaste.DeadLetterFilter{
		Queue: text("queue"), Subscription: text("subscription"), Kind: text("kind"), Key: text("key"), Reference: text("reference"),
		Term: text("term"), Error: text("error"), DiedFrom: at("died_from"), DiedBefore: at("died_before"),
	}
}

// decided lists the dead letters that were replayed or discarded, and the requested ids
// that were not dead letters. For a filter, next is where to continue if there may be more.
type decided struct {
	IDs      []posthaste.MessageID `json:"ids"`
	NotFound []posthaste.MessageID `json:"not_found"`
	// UniqueConflict are dead letters that stay, because other messages hold their unique keys.
	UniqueConflict []posthaste.MessageID `json:"unique_conflict,omitempty"`
	Next           posthaste.MessageID   `json:"next,omitzero"`
}

// decideDeadLetters replays or discards the dead letters that the body selects by ids or by
// a filter.
func (s *Server) decideDeadLetters(decide func(context.Context, posthaste.DeadLetterFilter) (posthaste.Page[posthaste.MessageID], error)) answer {
	return func(w http.ResponseWriter, r *http.Request) error {
		body, err := readJSON(w, r, false)
		if err != nil {
			return err
		}
		filter, err := parseChosen(body)
		if err != nil {
			return err
		}
		ids := filter.IDs
		ctx, cancel := s.operation(r)
		defer cancel()
		were, err := decide(ctx, filter)
		if e, ok := errors.AsType[*posthaste.Error](err); ok && len(ids) > 0 && e.Code == posthaste.CodeNotFound {
			return noDeadLetters(ids, e.Message)
		}
		if err != nil {
			return err
		}
		answer := decided{IDs: append([]posthaste.MessageID{}, were.Items...), NotFound: []posthaste.MessageID{}, UniqueConflict: were.Conflicts, Next: were.Next}
		for _, id := range ids {
			if !slices.Contains(answer.IDs, id) && !slices.Contains(were.Conflicts, id) {
				answer.NotFound = append(answer.NotFound, id)
			}
		}
		return s.writeJSON(w, http.StatusOK, answer)
	}
}

// noDeadLetters is the error if none of the ids is a dead letter. The engine's message
// explains the first ones if it knows what happened to them.
func noDeadLetters(ids []posthaste.MessageID, message string) error {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	return &httpError{ids: texts, err: &posthaste.Error{
		Code: posthaste.CodeNotFound, Field: "ids", Message: message,
	}}
}

// parseChosen reads {"ids":["1","2"]} and removes repetitions, or it reads
// {"filter":{…},"limit":100,"before":"9"}. {"all":true} instead of the filter selects every
// dead letter. A filter without fields or with an empty field is rejected, because it is
// usually the result of a missing value.
func parseChosen(body []byte) (filter posthaste.DeadLetterFilter, err error) {
	o, err := wire.ParseObject("", body)
	if err != nil {
		return filter, err
	}
	all, fields := o.Bool("all", false), o.Object("filter")
	if !all && fields == nil {
		return posthaste.DeadLetterFilter{IDs: readIDs(o)}, o.Finish()
	}
	if o.Has("ids") {
		o.Fail("ids", "cannot be combined with filter or all")
	}
	o.Raw("ids")
	filter.All = all
	if fields != nil {
		if all {
			o.Fail("all", "cannot be combined with filter")
		}
		fields.Filled()
		filter = deadFilter(fields.Text, fields.Time)
		if err := fields.Finish(); err != nil {
			return filter, err
		}
		if reflect.DeepEqual(filter, posthaste.DeadLetterFilter{}) {
			o.Fail("filter", `must select dead letters; use "all": true instead to select every dead letter`)
		}
	}
	filter.Limit, filter.Before = o.Int("limit", 1, maxListed), readBefore(o)
	return filter, o.Finish()
}

func readIDs(o *wire.Object) (ids []posthaste.MessageID) {
	given := o.Has("ids")
	texts := o.Texts("ids")
	if given && (len(texts) == 0 || len(texts) > maxListed) {
		o.Fail("ids", "must have 1 to %d ids, got %d", maxListed, len(texts))
	}
	if !given {
		o.Fail("ids", "is required, unless filter or all is given: an array of message ids")
	}
	for i, text := range texts {
		var id posthaste.MessageID
		if id.UnmarshalText([]byte(text)) != nil {
			o.Fail(fmt.Sprintf("ids[%d]", i), "must be a message id, which is a positive decimal number in a string, got %q", text)
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}
