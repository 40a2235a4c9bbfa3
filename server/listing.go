package server

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// Page sizes of lists.
const (
	maxListed     = 1000
	defaultListed = 100
)

// newListed returns the page that ends at the position next, "" if it is the last page.
func newListed[T, Shown any](list string, items []T, next string, show func(T) Shown) wire.Listed[Shown] {
	return wire.Listed[Shown]{Data: shown(items, show), Next: wire.NewCursor(list, next), HasMore: next != ""}
}

const notACursor = "must be the next of a page of this list; leave it out for the first page"

// cursorOf returns the position of the parameter cursor; "" if it is absent.
func cursorOf(q *query, list string) string {
	text := q.text("cursor")
	if text == "" {
		return ""
	}
	position, ok := wire.ReadCursor(list, text)
	if !ok || position == "" {
		q.fail("cursor", notACursor)
	}
	return position
}

// idCursorOf is cursorOf for lists whose positions are ids.
func idCursorOf(q *query, list string) (before posthaste.MessageID) {
	text := q.text("cursor")
	if text == "" {
		return 0
	}
	before, ok := wire.ReadIDCursor(list, text)
	if !ok {
		q.fail("cursor", notACursor)
	}
	return before
}

// bodyCursor takes the field cursor of a body, where a page begins. It rejects "", which would
// mean the first page.
func bodyCursor(o *wire.Object, list string) (before posthaste.MessageID) {
	if !o.Has("cursor") {
		o.Raw("cursor")
		return 0
	}
	before, ok := wire.ReadIDCursor(list, o.Text("cursor"))
	if !ok {
		o.Fail("cursor", "must be the next of the response before; leave it out to begin")
	}
	return before
}

// idPosition is the position of an id in a list; "" for 0.
func idPosition(next posthaste.MessageID) string {
	if next == 0 {
		return ""
	}
	return next.String()
}

// collection is a list that the store returns completely. Pages are cut by key, so that they
// neither repeat nor omit anything if entries are added or removed meanwhile.
type collection[T, Shown any] struct {
	list string
	all  func(context.Context, *http.Request) ([]T, error)
	// key is unique among the entries. The list is in its order.
	key  func(T) string
	show func(*http.Request, T) Shown
}

func (c collection[T, Shown]) handler(s *Server) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		q := readQuery(r, "limit", "cursor")
		limit, after := q.int("limit", defaultListed, 1, maxListed), cursorOf(q, c.list)
		if q.err != nil {
			return q.err
		}
		ctx, cancel := s.operation(r)
		defer cancel()
		all, err := c.all(ctx, r)
		if err != nil {
			return err
		}
		slices.SortFunc(all, func(a, b T) int { return strings.Compare(c.key(a), c.key(b)) })
		all = slices.DeleteFunc(all, func(one T) bool { return after != "" && c.key(one) <= after })
		next := ""
		if len(all) > limit {
			all, next = all[:limit], c.key(all[limit-1])
		}
		return s.writeJSON(w, http.StatusOK, newListed(c.list, all, next, func(one T) Shown { return c.show(r, one) }))
	}
}

// always is for collections that every reader sees in the same way.
func always[T, Shown any](show func(T) Shown) func(*http.Request, T) Shown {
	return func(_ *http.Request, one T) Shown { return show(one) }
}

// shown converts a list for the response. It is never nil, which JSON would show as null.
func shown[T, Shown any](all []T, show func(T) Shown) []Shown {
	list := make([]Shown, len(all))
	for i, each := range all {
		list[i] = show(each)
	}
	return list
}
