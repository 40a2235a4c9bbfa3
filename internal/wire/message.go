// Package wire defines the JSON of Posthaste: what requests may contain and what responses
// look like. The HTTP API and the command line share it, so names are the same in both.
//
// Parsers are strict. A field that is unknown, given twice, of the wrong type or not
// supported yet is an error that names the field. Text after the JSON value is an error,
// too. All errors are *posthaste.Error.
package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"strconv"

	"github.com/posthaste-mq/posthaste"
)

// ParseMessage reads a message object for a queue. Its fields are payload, key, kind, headers,
// reference, terms, content_type, delay, send_at, priority, dedupe_key, dedupe_window, unique,
// max_attempts, timeout, backoff and wake. The engine checks the limits of a message and its queue.
func ParseMessage(queue string, data []byte) (posthaste.Message, error) {
	if err := Check(data); err != nil {
		return posthaste.Message{}, err
	}
	return parseMessage("", queue, data)
}

// ParseBatch reads {"messages": […]} with 1 to [MaxBatch] messages as in [ParseMessage].
func ParseBatch(queue string, data []byte) ([]posthaste.Message, error) {
	o, err := ParseObject("", data)
	if err != nil {
		return nil, err
	}
	raw := o.Raw("messages")
	if raw == nil {
		o.Fail("messages", "is required: an array of messages")
	}
	if err := o.Finish(); err != nil {
		return nil, err
	}
	return parseMessages("messages", queue, raw)
}

// ParseMessages reads one message object, or an array of them, as [ParseMessage] does. single
// reports that it was one object.
func ParseMessages(queue string, data []byte) (messages []posthaste.Message, single bool, err error) {
	if err := Check(data); err != nil {
		return nil, false, err
	}
	if kindOf(data) != "an array" {
		m, err := parseMessage("", queue, data)
		return []posthaste.Message{m}, true, err
	}
	messages, err = parseMessages("", queue, data)
	return messages, false, err
}

func parseMessages(path, queue string, data []byte) ([]posthaste.Message, error) {
	elements, err := parseArray(path, data)
	if err != nil {
		return nil, err
	}
	if len(elements) == 0 {
		return nil, posthaste.Invalidf(path, "the array must have 1 to %d messages, got 0", MaxBatch)
	}
	messages := make([]posthaste.Message, len(elements))
	for i, element := range elements {
		if messages[i], err = parseMessage("messages["+strconv.Itoa(i)+"]", queue, element); err != nil {
			return nil, err
		}
	}
	return messages, nil
}

// laterMessageOptions are planned options that are not supported yet.
var laterMessageOptions = []string{"ordered", "subscription", "idempotency_key"}

func parseMessage(path, queue string, data []byte) (posthaste.Message, error) {
	o, err := parseObject(path, data)
	if err != nil {
		return posthaste.Message{}, err
	}
	m := posthaste.Message{Queue: queue}
	m.ContentType = o.Text("content_type")
	m.Payload = payload(o, m.ContentType)
	readOptions(o, &m)
	if m.Payload == nil {
		o.Fail("payload", "is required; it may be null")
	}
	return m, o.Finish(laterMessageOptions...)
}

// ParseOptions reads the options of a message into m: an object as in [ParseMessage]
// without payload and content_type.
func ParseOptions(data []byte, m *posthaste.Message) error {
	o, err := ParseObject("", data)
	if err != nil {
		return err
	}
	readOptions(o, m)
	return o.Finish(laterMessageOptions...)
}

func readOptions(o *Object, m *posthaste.Message) {
	m.Key = o.Text("key")
	m.Kind = o.Text("kind")
	m.Headers = o.TextMap("headers")
	m.Reference = o.Text("reference")
	m.Terms = o.Texts("terms")
	if o.Has("delay") && o.Has("send_at") {
		o.Fail("send_at", "cannot be combined with delay")
	}
	m.Delay = o.Duration("delay")
	m.SendAt = o.Time("send_at")
	m.Priority = o.Int("priority", 0, posthaste.MaxPriority)
	m.DedupeKey = o.Text("dedupe_key")
	m.DedupeWindow = o.positiveDuration("dedupe_window")
	if m.DedupeWindow != 0 && m.DedupeKey == "" {
		o.Fail("dedupe_window", "requires dedupe_key")
	}
	m.Unique = unique(o)
	m.MaxAttempts, m.Timeout, m.Backoff = o.attempts()
	m.NoWake = !o.Bool("wake", true)
}

// unique reads the field unique.
func unique(o *Object) *posthaste.Unique {
	raw := o.Raw("unique")
	if text := string(bytes.TrimSpace(raw)); text == "" || text == "null" {
		return nil
	}
	u, err := parseObject(o.at("unique"), raw)
	if err != nil {
		o.Fail("unique", "must be an object, got %s", kindOf(raw))
		return nil
	}
	found := &posthaste.Unique{Key: u.Text("key"), Until: posthaste.Until(u.Text("until")), Exists: posthaste.Exists(u.Text("exists")), MaxDelay: u.positiveDuration("max_delay")}
	o.keep(u.Finish())
	return found
}

// ParseUpdate reads a change of a message: an object with the fields payload, content_type, key,
// kind, headers, reference, terms and priority. null removes a field.
func ParseUpdate(data []byte) (u posthaste.MessageUpdate, err error) {
	o, err := ParseObject("", data)
	if err != nil {
		return u, err
	}
	// Reading a field takes it, so that whether it is given is asked before.
	text := func(name string) *string {
		if !o.given(name) {
			return nil
		}
		value := o.Text(name)
		return &value
	}
	u.ContentType = text("content_type")
	contentType := ""
	if u.ContentType != nil {
		contentType = *u.ContentType
	}
	u.Payload = payload(o, contentType)
	u.Key, u.Kind, u.Reference = text("key"), text("kind"), text("reference")
	if o.given("headers") {
		u.Headers = map[string]string{}
		maps.Copy(u.Headers, o.TextMap("headers"))
	}
	if o.given("terms") {
		u.Terms = append([]string{}, o.Texts("terms")...)
	}
	if o.given("priority") {
		priority := o.Int("priority", 0, posthaste.MaxPriority)
		u.Priority = &priority
	}
	return u, o.Finish()
}

func payload(o *Object, contentType string) any {
	raw := o.Raw("payload")
	if raw == nil {
		return nil
	}
	if posthaste.IsJSON(contentType) {
		return raw
	}
	var encoded string
	if kindOf(raw) != "a string" || json.Unmarshal(raw, &encoded) != nil {
		o.Fail("payload", "must be a base64 string, because content_type is %q, got %s", contentType, kindOf(raw))
		return nil
	}
	decoded, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		o.Fail("payload", "must be base64, because content_type is %q: %s", contentType, err)
		return nil
	}
	return decoded
}

// Payload returns a stored payload as a JSON value, and its encoding: "json" for JSON as it
// was stored, or "base64" for a string with all other content.
func Payload(contentType string, stored []byte) (value json.RawMessage, encoding string) {
	// A JSON content type is no guarantee: SQL can store any bytes under most types.
	if posthaste.IsJSON(contentType) && Check(stored) == nil {
		return bytes.TrimSpace(stored), "json"
	}
	encoded := make([]byte, 0, base64.StdEncoding.EncodedLen(len(stored))+2)
	encoded = append(encoded, '"')
	encoded = base64.StdEncoding.AppendEncode(encoded, stored)
	return append(encoded, '"'), "base64"
}
