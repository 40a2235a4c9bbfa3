package cli

import (
	"bytes"
	"fmt"

	"github.com/posthaste-mq/posthaste"
)

// paging checks --limit and parses --before.
func paging(limit int, text string, before *posthaste.MessageID) error {
	if limit < 1 || limit > 1000 {
		return posthaste.Invalidf("limit", "--limit must be 1 to 1000, got %d", limit)
	}
	if text == "" {
		return nil
	}
	if before.UnmarshalText([]byte(text)) != nil {
		return posthaste.Invalidf("before", "--before must be a message id, got %q", text)
	}
	return nil
}

// listed is a list, or a page of one, that the HTTP API has too. Its JSON is the same, except that
// next is an id, for --before.
type listed struct {
	data any // a slice
	next posthaste.MessageID
}

// list implements [listing].
func (l listed) list() any { return l.data }

// MarshalJSON implements [json.Marshaler].
func (l listed) MarshalJSON() ([]byte, error) {
	value := struct {
		Data    any    `json:"data"`
		Next    string `json:"next,omitempty"`
		HasMore bool   `json:"has_more"`
	}{l.data, "", l.next != 0}
	if l.next != 0 {
		value.Next = l.next.String()
	}
	var text bytes.Buffer
	err := encodeJSON(&text, value)
	return text.Bytes(), err
}

// page is one page of a listing.
type page struct {
	shown any // a slice
	// none is printed if the listing is empty.
	none string
	// next is where the next page starts, or 0 on the last page.
	next posthaste.MessageID
}

// print prints the page, and how to get the next one. A page that is not the last can be
// empty, because a search stops after a number of rows.
func (p page) print(a *app, rows int, text func(w *screen)) error {
	err := a.print(listed{p.shown, p.next}, func(w *screen) {
		switch {
		case rows > 0:
			text(w)
		case p.next == 0:
			fmt.Fprintln(w, p.none)
		default:
			fmt.Fprintf(w, "no match so far; the search stopped at message %s\n", p.next)
		}
	})
	if err == nil && p.next != 0 {
		_, notices := a.streams()
		fmt.Fprintf(notices, "… more: --before %s\n", p.next)
	}
	return err
}
