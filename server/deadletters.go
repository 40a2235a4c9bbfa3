package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func (s *Server) listDeadLetters(w http.ResponseWriter, r *http.Request) error {
	filter, err := parseDeadQuery(r)
	if err == nil {
		err = allowContent(r, "term", filter.Term)
	}
	if err != nil {
		return err
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	dead, err := s.engine.DeadLetters(ctx, filter)
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, newListed(wire.ListDeadLetters, dead.Items, idPosition(dead.Next), func(d posthaste.DeadLetter) wire.DeadLetter { return showDead(r, d) }))
}

func showDead(r *http.Request, d posthaste.DeadLetter) wire.DeadLetter {
	view := wire.NewDeadLetter(d)
	if !seesAllPayloads(r) {
		view.HidePayload()
	}
	return view
}

// parseDeadQuery reads the filter of a list: ?id=1&id=2, or deadFields and a page.
func parseDeadQuery(r *http.Request) (posthaste.DeadLetterFilter, error) {
	q := readQuery(r, append([]string{"id", "limit", "cursor"}, deadFields...)...)
	filter := deadFilter(q.text, q.time)
	filter.Before, filter.Limit = idCursorOf(q, wire.ListDeadLetters), q.int("limit", defaultListed, 1, maxListed)
	for _, text := range q.values["id"] {
		var id posthaste.MessageID
		if id.UnmarshalText([]byte(text)) != nil {
			q.fail("id", "must be a message id, which is a positive decimal number, got "+strconv.Quote(text))
		}
		filter.IDs = append(filter.IDs, id)
	}
	return filter, q.err
}

// showDeadLetter shows the dead letter of the message in the path. If the message is dead in
// several subscriptions, the parameter subscription chooses one.
func (s *Server) showDeadLetter(w http.ResponseWriter, r *http.Request) error {
	q := readQuery(r, "subscription")
	if q.err != nil {
		return q.err
	}
	id, err := pathMessageID(r)
	if err != nil {
		return err
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	dead, err := s.engine.DeadLetters(ctx, posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{id}, Limit: maxListed})
	if err != nil {
		return err
	}
	found := slices.DeleteFunc(slices.Clone(dead.Items), func(d posthaste.DeadLetter) bool {
		return q.text("subscription") != "" && d.Subscription != q.text("subscription")
	})
	var in []string
	for _, d := range dead.Items {
		in = append(in, d.Subscription)
	}
	switch {
	case len(dead.Items) == 0:
		return &posthaste.Error{Code: posthaste.CodeNotFound, Field: "id", Message: "message " + id.String() + " is not a dead letter",
			Hint: "GET /v1/messages/" + id.String() + " shows its state"}
	case len(found) == 0:
		return &posthaste.Error{Code: posthaste.CodeNotFound, Field: "subscription",
			Message: "message " + id.String() + " is not a dead letter of this subscription, but of " + strings.Join(in, ", ")}
	case len(found) > 1:
		return &posthaste.Error{Code: posthaste.CodeConflict, Field: "subscription", Message: "message " + id.String() + " is a dead letter of several subscriptions: " + strings.Join(in, ", "),
			Hint: "add ?subscription=" + in[0]}
	}
	return s.writeJSON(w, http.StatusOK, showDead(r, found[0]))
}

// deadFields are the fields of a filter, in the query and in bodies.
var deadFields = []string{"queue", "subscription", "kind", "key", "reference", "term", "error", "died_from", "died_before"}

func deadFilter(text func(name string) string, at func(name string) time.Time) posthaste.DeadLetterFilter {
	return posthaste.DeadLetterFilter{
		Queue: text("queue"), Subscription: text("subscription"), Kind: text("kind"), Key: text("key"), Reference: text("reference"),
		Term: text("term"), Error: text("error"), DiedFrom: at("died_from"), DiedBefore: at("died_before"),
	}
}

// decideDeadLetters replays or discards the dead letters that the body selects by ids or by
// a filter.
func (s *Server) decideDeadLetters(decide func(context.Context, posthaste.DeadLetterFilter) (posthaste.Page[posthaste.MessageID], error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		body, err := readJSON(w, r, false)
		if err != nil {
			return err
		}
		filter, err := parseChosen(body)
		if err != nil {
			return err
		}
		if err := allowContent(r, "term", filter.Term); err != nil {
			return err
		}
		decided, err := s.decide(r, filter, decide)
		if err != nil {
			return err
		}
		return s.writeJSON(w, http.StatusOK, decided)
	}
}

// decideDeadLetter replays or discards the dead letters of the message in the path.
func (s *Server) decideDeadLetter(decide func(context.Context, posthaste.DeadLetterFilter) (posthaste.Page[posthaste.MessageID], error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		id, err := pathMessageID(r)
		if err != nil {
			return err
		}
		if _, err := s.decide(r, posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{id}}, decide); err != nil {
			return err
		}
		return s.writeJSON(w, http.StatusOK, wire.Sent{ID: id})
	}
}

func (s *Server) decide(r *http.Request, filter posthaste.DeadLetterFilter, decide func(context.Context, posthaste.DeadLetterFilter) (posthaste.Page[posthaste.MessageID], error)) (decided wire.Decided, err error) {
	ids := filter.IDs
	ctx, cancel := s.operation(r)
	defer cancel()
	were, err := decide(ctx, filter)
	if e, ok := errors.AsType[*posthaste.Error](err); ok && len(ids) > 0 && e.Code == posthaste.CodeNotFound {
		return decided, noDeadLetters(ids, e.Message)
	}
	if err != nil {
		return decided, err
	}
	decided = wire.Decided{IDs: append([]posthaste.MessageID{}, were.Items...), NotFound: []posthaste.MessageID{}, UniqueConflict: were.Conflicts,
		Next: wire.NewIDCursor(wire.ListDeadLetters, were.Next), HasMore: were.Next != 0}
	for _, id := range ids {
		if !slices.Contains(decided.IDs, id) && !slices.Contains(were.Conflicts, id) {
			decided.NotFound = append(decided.NotFound, id)
		}
	}
	return decided, nil
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
// {"filter":{…},"limit":100,"cursor":"…"}. {"all":true} instead of the filter selects every
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
	filter.Limit, filter.Before = o.Int("limit", 1, maxListed), bodyCursor(o, wire.ListDeadLetters)
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
