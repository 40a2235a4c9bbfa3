// Package wire is how Posthaste's things are written as JSON: what a person or
// program may ask for, read strictly, and what they are told. The HTTP API and
// the command line share it, so that one thing has one spelling.
//
// Reading is strict: a field that is unknown, given twice, of the wrong type
// or not supported yet is an error that names it, and so is anything behind
// the JSON value. All errors are *posthaste.Error.
package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/posthaste-mq/posthaste"
)

// MaxBatch is the most elements one request may carry in an array.
const MaxBatch = 10_000

// ParseMessages reads one message object, or an array of them, for a queue.
// single says that it was one object. Fields of a message are payload, key,
// kind, headers, reference, terms, content_type, delay, send_at, priority, dedupe_key,
// dedupe_window and wake.
// The limits of a message and its queue are the engine's to check.
func ParseMessages(queue string, data []byte) (messages []posthaste.Message, single bool, err error) {
	if err := Check(data); err != nil {
		return nil, false, err
	}
	if kindOf(data) != "an array" {
		m, err := parseMessage("", queue, data)
		return []posthaste.Message{m}, true, err
	}
	elements, err := ParseArray("", data)
	if err != nil {
		return nil, false, err
	}
	if len(elements) == 0 || len(elements) > MaxBatch {
		return nil, false, posthaste.Invalidf("", "the array must hold 1 to %d messages, and holds %d", MaxBatch, len(elements))
	}
	messages = make([]posthaste.Message, len(elements))
	for i, element := range elements {
		if messages[i], err = parseMessage(fmt.Sprintf("messages[%d]", i), queue, element); err != nil {
			return nil, false, err
		}
	}
	return messages, false, nil
}

// laterMessageOptions are options that the product knows and does not have yet.
var laterMessageOptions = []string{"ordered", "subscription", "idempotency_key"}

func parseMessage(path, queue string, data []byte) (posthaste.Message, error) {
	o, err := ParseObject(path, data)
	if err != nil {
		return posthaste.Message{}, err
	}
	m := posthaste.Message{Queue: queue}
	m.ContentType = o.Text("content_type")
	m.Payload = payload(o, m.ContentType)
	readOptions(o, &m)
	if m.Payload == nil {
		o.Fail("payload", "is required; null is a payload, too")
	}
	return m, o.Finish(laterMessageOptions...)
}

// ParseOptions reads a message's options, that is an object as ParseMessages
// takes it but without payload and content_type, into m.
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
		o.Fail("send_at", "excludes delay: give one of them")
	}
	m.Delay = o.Duration("delay")
	m.SendAt = o.Time("send_at")
	m.Priority = o.Int("priority", 0, posthaste.MaxPriority)
	m.DedupeKey = o.Text("dedupe_key")
	m.DedupeWindow = positiveDuration(o, "dedupe_window")
	if m.DedupeWindow != 0 && m.DedupeKey == "" {
		o.Fail("dedupe_window", "says nothing without a dedupe_key")
	}
	m.NoWake = !o.Bool("wake", true)
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
		o.Fail("payload", "must be base64 in a string, because content_type is %q, and is %s", contentType, kindOf(raw))
		return nil
	}
	decoded, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		o.Fail("payload", "must be base64, because content_type is %q: %s", contentType, err)
		return nil
	}
	return decoded
}

// Payload is a stored payload as JSON carries it: JSON as it is, all else as
// base64 in a string, and Encoding tells which.
func Payload(contentType string, stored []byte) (value json.RawMessage, encoding string) {
	// What calls itself JSON need not be: SQL can store any bytes under most types.
	if posthaste.IsJSON(contentType) && Check(stored) == nil {
		return bytes.TrimSpace(stored), "json"
	}
	encoded := make([]byte, 0, base64.StdEncoding.EncodedLen(len(stored))+2)
	encoded = append(encoded, '"')
	encoded = base64.StdEncoding.AppendEncode(encoded, stored)
	return append(encoded, '"'), "base64"
}
