package wire

import (
	"encoding/base64"
	"strings"

	"github.com/posthaste-mq/posthaste"
)

// The lists whose pages end at ids. A cursor names its list.
const (
	ListMessages    = "messages"
	ListEmails      = "emails"
	ListDeadLetters = "dead-letters"
	ListActions     = "actions"
	ListPauses      = "pauses"
	ListErasures    = "erase"
)

// Listed is one page of a list. All lists of the API have this form.
type Listed[T any] struct {
	Data []T `json:"data"`
	// Next is the cursor of the next page; absent on the last page.
	Next string `json:"next,omitempty"`
	// HasMore reports whether there may be a next page.
	HasMore bool `json:"has_more"`
}

// NewCursor returns the cursor of a position in a list; "" for "". It names the list, so that a
// cursor of another list is rejected.
func NewCursor(list, position string) string {
	if position == "" {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(list + ":" + position))
}

// ReadCursor returns the position of a cursor, and whether it is a cursor of the list.
func ReadCursor(list, cursor string) (position string, ok bool) {
	text, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil {
		return "", false
	}
	return strings.CutPrefix(string(text), list+":")
}

// NewIDCursor returns the cursor of a list whose positions are ids; "" for 0.
func NewIDCursor(list string, next posthaste.MessageID) string {
	if next == 0 {
		return ""
	}
	return NewCursor(list, next.String())
}

// ReadIDCursor returns the id of a cursor of [NewIDCursor], and whether it is one of the list.
func ReadIDCursor(list, cursor string) (next posthaste.MessageID, ok bool) {
	position, ok := ReadCursor(list, cursor)
	return next, ok && next.UnmarshalText([]byte(position)) == nil
}
