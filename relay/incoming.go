package relay

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"mime"
	"strings"
	"unicode/utf8"

	"github.com/posthaste-mq/posthaste"
)

// Incoming is a message as it was read from a broker: the inverse of [Outgoing].
type Incoming struct {
	// MessageID is the broker's deduplication id, or empty.
	MessageID   string
	ContentType string
	// Kind and Key are taken from fields of the broker, if it has any. The headers of
	// a message that was relayed take precedence.
	Kind, Key string
	Payload   []byte
	Headers   map[string]string
}

// HeaderEvent is the prefix of the headers that hold the attributes of a CloudEvent, such
// as ce-source.
const HeaderEvent = "ce-"

// Message returns the message to send to a queue. It restores a message that [Mapper.Map]
// mapped; prefix is that of [NewMapper]. If the message is a CloudEvent, the payload is its
// data, type and subject are kind and key unless those are set, and all attributes become
// headers. Without a content type the payload is bytes. An error is permanent: the message
// does not have the format of its content type.
//
// The dedupe key is the [DedupeKey] of the message id. The id of an event is unique only
// within its source. If the message id is missing or equals the event's id, the dedupe key
// therefore consists of source and id, and an event without a source has none.
func (in *Incoming) Message(prefix string) (posthaste.Message, error) {
	m := posthaste.Message{DedupeKey: DedupeKey(in.MessageID), ContentType: in.ContentType, Kind: in.Kind, Key: in.Key, Payload: in.Payload}
	headers := make(map[string]string, len(in.Headers))
	attributes := map[string]string{}
	for name, value := range in.Headers {
		switch name {
		case HeaderKind:
			m.Kind = value
		case HeaderKey:
			m.Key = value
		case HeaderReference:
			m.Reference = value
		case HeaderQueue, HeaderAttempt: // they describe its earlier delivery
		default:
			if attribute, ok := strings.CutPrefix(name, prefix); ok && prefix != "" {
				attributes[attribute] = value
			} else {
				headers[name] = value
			}
		}
	}
	if media, _, err := mime.ParseMediaType(in.ContentType); err == nil && media == "application/cloudevents+json" {
		if err := structured(&m, attributes); err != nil {
			return posthaste.Message{}, err
		}
	} else if attributes["specversion"] == "" { // not an event: the prefix is a coincidence
		for name, value := range attributes {
			headers[prefix+name] = value
		}
		clear(attributes)
	}
	for name, value := range attributes {
		switch name {
		case posthaste.HeaderTraceParent, posthaste.HeaderTraceState:
			if headers[name] == "" {
				headers[name] = value
			}
			continue
		case "type":
			m.Kind = cmp.Or(m.Kind, value)
		case "subject":
			m.Key = cmp.Or(m.Key, value)
		}
		headers[HeaderEvent+name] = value
	}
	if id, source := attributes["id"], attributes["source"]; id != "" && source != "" && (in.MessageID == "" || in.MessageID == id) {
		m.DedupeKey = eventKey(source, id)
	}
	if len(headers) > 0 {
		m.Headers = headers
	}
	m.ContentType = cmp.Or(m.ContentType, posthaste.ContentTypeBytes)
	return m, nil
}

// structured decodes an event in JSON.
func structured(m *posthaste.Message, attributes map[string]string) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(m.Payload.([]byte), &members); err != nil {
		return posthaste.Invalidf("payload", "payload is not a CloudEvent, though its content type says so: %v", err)
	}
	data, inBytes := []byte(members["data"]), []byte(nil)
	for name, raw := range members {
		var err error
		switch name {
		case "data":
		case "data_base64":
			err = json.Unmarshal(raw, &inBytes)
		default:
			var text string
			if err = json.Unmarshal(raw, &text); err != nil { // a number or a boolean
				text, err = string(raw), nil
			}
			attributes[name] = text
		}
		if err != nil {
			return posthaste.Invalidf("payload", "payload is not a CloudEvent, though its content type says so: %s: %v", name, err)
		}
	}
	if attributes["specversion"] == "" {
		return posthaste.Invalidf("payload", "payload is not a CloudEvent, though its content type says so: specversion is missing")
	}
	m.ContentType = attributes["datacontenttype"]
	switch {
	case inBytes != nil:
		m.Payload = inBytes
	case data == nil:
		m.Payload = []byte{}
	case m.ContentType == "":
		m.ContentType, m.Payload = posthaste.ContentTypeJSON, data
	case !isJSON(m.ContentType):
		// The standard encodes other data as a JSON string.
		var text string
		if err := json.Unmarshal(data, &text); err == nil {
			data = []byte(text)
		}
		m.Payload = data
	default:
		m.Payload = data
	}
	return nil
}

// eventKey returns the dedupe key of an event. Two events are the same if and only if both
// source and id are equal.
func eventKey(source, id string) string {
	// A source is a URI reference, which may contain a space only in this encoding. So
	// the first space of the key ends the source.
	return DedupeKey(strings.ReplaceAll(source, " ", "%20") + " " + id)
}

// DedupeKey returns a dedupe key for a broker's message id: the id itself, or its SHA-256 in
// hexadecimal if its length or its characters are not allowed in a dedupe key.
func DedupeKey(id string) string {
	if len(id) <= posthaste.MaxWordBytes && utf8.ValidString(id) && strings.IndexByte(id, 0) < 0 {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256:" + hex.EncodeToString(sum[:])
}
