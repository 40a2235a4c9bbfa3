package posthaste

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
)

// Body returns the encoded new payload, nil if it does not change, and the new content type.
func (u *MessageUpdate) Body() (body []byte, contentType *string, err error) {
	if u.Payload == nil {
		return nil, u.ContentType, nil
	}
	m := Message{Payload: u.Payload, Codec: u.Codec}
	if u.ContentType != nil {
		m.ContentType = *u.ContentType
	}
	body, of, err := m.Body()
	if err != nil {
		return nil, nil, err
	}
	return body, &of, nil
}

// Apply returns the message with the update. Its payload is the encoded one, and it is checked as
// one that is sent. It is for engines.
func (u *MessageUpdate) Apply(m Message) (Message, error) {
	body, contentType, err := u.Body()
	if err != nil {
		return m, err
	}
	if body != nil {
		m.Payload, m.Codec = body, nil
	}
	if contentType != nil {
		m.ContentType = *contentType
	}
	for _, x := range [...]struct{ to, from *string }{{&m.Key, u.Key}, {&m.Kind, u.Kind}, {&m.Reference, u.Reference}} {
		if x.from != nil {
			*x.to = *x.from
		}
	}
	if u.Headers != nil {
		m.Headers = u.Headers
	}
	if u.Terms != nil {
		m.Terms = u.Terms
	}
	if u.Priority != nil {
		m.Priority = *u.Priority
	}
	if u.Payload == nil && contentType == nil && u.Headers == nil && u.Terms == nil && u.Priority == nil && u.Key == nil && u.Kind == nil && u.Reference == nil {
		return m, Invalidf("changes", "no field to change")
	}
	return m, m.Check()
}

// KeepAttemptOptions takes MaxAttempts, Timeout and Backoff of the message that this one replaces,
// unless it sets one of them. It is for engines.
func (m *Message) KeepAttemptOptions(old *Message) {
	if m.MaxAttempts == 0 && m.Timeout == 0 && m.Backoff == (Backoff{}) {
		m.MaxAttempts, m.Timeout, m.Backoff = old.MaxAttempts, old.Timeout, old.Backoff
	}
}

// VersionOf returns a version of a message's content. It is for engines that store none.
func VersionOf(m *MessageInfo) string {
	if m.Payload == nil {
		return ""
	}
	text, _ := json.Marshal([]any{orDefault(m.ContentType, ContentTypeJSON), m.Key, m.Kind, m.Headers, m.Reference, m.Terms, m.Payload}) // always encodes
	sum := sha256.Sum256(text)
	return fmt.Sprintf("%x", sum[:16])
}

// UniqueKey returns the unique key of a message with this encoded payload in the form in which
// engines store it: = and the sender's key, or # and a hash of the kind and the payload. It is
// for engines that do not hash by themselves.
func (m *Message) UniqueKey(body []byte) string {
	if m.Unique.Key != "" {
		return "=" + m.Unique.Key
	}
	sum := sha256.Sum256(append([]byte(m.Kind+"\n"), body...))
	return fmt.Sprintf("#%x", sum)
}

// CheckUniqueKeys returns an error if a message of a call would replace another one of it. keys are
// their queues and unique keys, empty without one. It is for engines.
func CheckUniqueKeys(messages []Message, keys []string) error {
	first := map[string]int{}
	for i, key := range keys {
		if key == "" {
			continue
		}
		before, found := first[key]
		if found && (messages[before].Unique.Exists == ReplaceExisting || messages[i].Unique.Exists == ReplaceExisting) {
			return Invalidf("unique", "messages %d and %d of one call have the same unique key, and one would replace the other", before+1, i+1)
		}
		if !found {
			first[key] = i
		}
	}
	return nil
}

// ReplayHeaders returns the headers of an edited copy of a dead letter. It is for engines.
func ReplayHeaders(headers map[string]string, id MessageID) map[string]string {
	now := maps.Clone(headers)
	if now == nil {
		now = map[string]string{}
	}
	delete(now, HeaderMessageID) // by which inboxes know the old one
	now[HeaderReplayOf] = id.String()
	return now
}
