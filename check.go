package posthaste

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxQueueNameBytes bounds names of queues and subscriptions.
const MaxQueueNameBytes = 63

// Check returns an [*Error] that names the field if the message is invalid, as far as that
// can be checked without the store: names, lengths, headers, times, and payloads above
// [MaxPayloadBytes]. The store checks the rest: that the queue exists, and its max_payload.
// Check neither encodes nor retains the payload.
func (m *Message) Check() error {
	if err := CheckName("queue", m.Queue); err != nil {
		return err
	}
	if m.Key != "" || m.Kind != "" || m.Reference != "" || m.ContentType != "" {
		for _, w := range [...]struct{ field, text string }{
			{"key", m.Key}, {"kind", m.Kind}, {"reference", m.Reference}, {"content_type", m.ContentType},
		} {
			if err := checkWord(w.field, w.text, MaxWordBytes); err != nil {
				return err
			}
		}
	}
	for i, term := range m.Terms {
		if err := checkWord(fmt.Sprintf("terms[%d]", i), term, MaxWordBytes); err != nil {
			return err
		}
	}
	if err := checkHeaders(m.Headers); err != nil {
		return err
	}
	if m.Priority < 0 || m.Priority > MaxPriority {
		return Invalidf("priority", "priority must be 0 to %d, got %d", MaxPriority, m.Priority)
	}
	if m.DedupeKey != "" || m.DedupeWindow != 0 {
		if err := m.checkDedupe(); err != nil {
			return err
		}
	}
	if m.Unique != nil {
		if err := m.checkUnique(); err != nil {
			return err
		}
	}
	if m.Delay < 0 {
		return Invalidf("delay", "delay must not be negative, got %s", m.Delay)
	}
	if m.Delay != 0 && !m.SendAt.IsZero() {
		return Invalidf("send_at", "delay and send_at exclude each other: give one of them")
	}
	if err := CheckTime("send_at", m.SendAt); err != nil {
		return err
	}
	if err := m.checkAttempts(); err != nil {
		return err
	}
	if n := payloadBytes(m.Payload); n > MaxPayloadBytes {
		return &Error{Code: CodeTooLarge, Field: "payload",
			Message: fmt.Sprintf("payload has %d bytes, at most %d are possible", n, MaxPayloadBytes)}
	}
	return nil
}

// checkAttempts checks the options of the message's attempts.
func (m *Message) checkAttempts() error {
	if m.MaxAttempts == 0 && m.Timeout == 0 && m.Backoff == (Backoff{}) {
		return nil
	}
	return checkAttempts(KindOptions{MaxAttempts: m.MaxAttempts, Timeout: m.Timeout, Backoff: m.Backoff})
}

// CheckFor returns an error if the message has options that a queue with the options o cannot
// have. Check does not know the queue.
func (m *Message) CheckFor(o *QueueOptions) error {
	switch {
	case o.Mode != AtMostOnce:
		return nil
	case m.MaxAttempts != 0:
		return Invalidf("max_attempts", "an at-most-once queue never retries: leave out max_attempts")
	case m.Backoff != (Backoff{}):
		return Invalidf("backoff", "an at-most-once queue never retries: leave out backoff")
	}
	return nil
}

// payloadBytes is the payload's size if it is known without encoding it.
func payloadBytes(payload any) int {
	switch p := payload.(type) {
	case []byte:
		return len(p)
	case json.RawMessage:
		return len(p)
	case string:
		return len(p)
	}
	return 128
}

// lastTime is the upper bound of times that a caller gives, posthaste.last_time in SQL.
var lastTime = time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC)

// CheckTime returns an error unless t lies in the years 1 to 9999 and before the last day
// of the year 9999, both in UTC: every program can show such a time, in any time zone. It
// accepts the zero time. field is the field that the error names.
func CheckTime(field string, t time.Time) error {
	if t.Before(time.Time{}) || !t.Before(lastTime) {
		return Invalidf(field, "%s must be a time from the year 1 to the last day but one of the year 9999, got %s", field, t.Format(time.RFC3339))
	}
	return nil
}

// CheckChoice returns an error unless the filter selects by IDs alone, by other fields, or by
// All. An empty filter for replaying or discarding is usually a mistake.
func (f *DeadLetterFilter) CheckChoice() error {
	if f.IDs != nil {
		if len(f.IDs) == 0 {
			return Invalidf("ids", "ids must not be empty")
		}
		if !reflect.DeepEqual(*f, DeadLetterFilter{IDs: f.IDs}) {
			return Invalidf("ids", "ids and a filter exclude each other")
		}
		return nil
	}
	chosen := *f
	chosen.IDs, chosen.All, chosen.Before, chosen.Limit = nil, false, 0, 0
	switch selects := !reflect.DeepEqual(chosen, DeadLetterFilter{}); {
	case f.All && selects:
		return Invalidf("all", "all and a filter exclude each other")
	case !f.All && !selects:
		return &Error{Code: CodeInvalid, Field: "filter", Message: "the filter is empty", Hint: "set All to select all dead letters"}
	}
	return nil
}

// MatchesError reports whether text contains Error, ignoring the case of A to Z only: stores
// fold the case of other letters differently.
func (f *DeadLetterFilter) MatchesError(text string) bool {
	lower := func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}
	return strings.Contains(strings.Map(lower, text), strings.Map(lower, f.Error))
}

func (m *Message) checkDedupe() error {
	switch {
	case m.DedupeKey == "":
		return Invalidf("dedupe_window", "dedupe_window needs a dedupe_key")
	case m.DedupeWindow < 0 || m.DedupeWindow > MaxDedupeWindow:
		return Invalidf("dedupe_window", "dedupe_window must be above zero and at most 365 days, got %s", m.DedupeWindow)
	}
	return checkWord("dedupe_key", m.DedupeKey, MaxWordBytes)
}

func (m *Message) checkUnique() error {
	u := m.Unique
	switch {
	case m.DedupeKey != "":
		return Invalidf("unique", "unique and dedupe_key exclude each other")
	case u.Until != "" && u.Until != UntilStarted && u.Until != UntilFinished && u.Until != UntilResolved:
		return Invalidf("unique", "until must be started, finished or resolved, got %q", u.Until)
	case u.Exists != "" && u.Exists != KeepExisting && u.Exists != ReplaceExisting:
		return Invalidf("unique", "exists must be keep or replace, got %q", u.Exists)
	case u.MaxDelay < 0 || u.MaxDelay > 0 && u.Exists != ReplaceExisting:
		return Invalidf("unique", "max_delay must be above zero, and needs exists: replace")
	}
	return checkWord("unique", u.Key, MaxWordBytes)
}

// CheckName returns an error for field unless name is valid for a queue or subscription: 1 to
// 63 of a-z, 0-9, "_", "-" and ".", but not "." or "..".
func CheckName(field, name string) error {
	if name == "" {
		return Invalidf(field, "%s is required: a name of 1 to %d of a-z, 0-9, _, - and .", field, MaxQueueNameBytes)
	}
	if len(name) > MaxQueueNameBytes {
		return Invalidf(field, "%s has %d bytes, at most %d are allowed", field, len(name), MaxQueueNameBytes)
	}
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '_', c == '-', c == '.':
		default:
			return Invalidf(field, "%s %q must consist of a-z, 0-9, _, - and .", field, name)
		}
	}
	if name == "." || name == ".." { // no URL's path can have such a part
		return Invalidf(field, "%s must not be %q", field, name)
	}
	return nil
}

func checkWord(field, text string, limit int) error {
	if len(text) > limit {
		return &Error{Code: CodeTooLarge, Field: field,
			Message: fmt.Sprintf("%s has %d bytes, at most %d are allowed", field, len(text), limit)}
	}
	if strings.IndexByte(text, 0) >= 0 || !utf8.ValidString(text) {
		return Invalidf(field, "%s must be valid UTF-8 without NUL characters", field)
	}
	return nil
}

func checkHeaders(headers map[string]string) error {
	total := 0
	for name, value := range headers {
		if name == "" {
			return Invalidf("headers", "a header has an empty name")
		}
		total += len(name) + len(value)
		for _, text := range [...]string{name, value} {
			if strings.IndexByte(text, 0) >= 0 || !utf8.ValidString(text) {
				return Invalidf("headers", "header %q must be valid UTF-8 without NUL characters", name)
			}
		}
	}
	if total > MaxHeaderBytes {
		return &Error{Code: CodeTooLarge, Field: "headers",
			Message: fmt.Sprintf("headers have %d bytes together, at most %d are allowed", total, MaxHeaderBytes)}
	}
	return nil
}
