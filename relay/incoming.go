package relay

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"mime"
	"strings"
	"unicode/utf8"

	posthaste "github.com/posthaste-mq/posthaste"
)

// Incoming is a message as a broker had it: the inverse of [Outgoing].
type Incoming struct {
	// MessageID is by what the broker's side knows it again; empty: by nothing.
	MessageID   string
	ContentType string
	// Kind and Key are what the broker has in a place of its own, if anything. The
	// headers of a message that was relayed say the same.
	Kind, Key string
	Payload   []byte
	Headers   map[string]string
}

// HeaderEvent is the prefix of headers under which a message has the attributes of
// the CloudEvent that it came as, such as ce-source.
const HeaderEvent = "ce-"

// Message makes the message for a queue: what [Mapper.Map] made of one comes out as
// it was. prefix is as for [NewMapper]. Of a CloudEvent the payload is its data, type
// and subject are kind and key unless these are told otherwise, and all attributes
// are headers. Without a content type the payload is bytes. Errors are for good: the
// message is what its sender says it is not.
//
// The dedupe key is the [DedupeKey] of the message id. An event's id is one of its
// source's alone: where the message id is missing or only repeats it, the dedupe key is
// source and id together, and without a source there is none.
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
		case HeaderQueue, HeaderAttempt: // of the relay that it came by
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
	} else if attributes["specversion"] == "" { // no event, and only the same prefix
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

// structured takes an event in JSON apart.
func structured(m *posthaste.Message, attributes map[string]string) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(m.Payload.([]byte), &members); err != nil {
		return posthaste.Invalidf("payload", "payload is no CloudEvent, though its content type says so: %v", err)
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
			if err = json.Unmarshal(raw, &text); err != nil { // numbers and truths
				text, err = string(raw), nil
			}
			attributes[name] = text
		}
		if err != nil {
			return posthaste.Invalidf("payload", "payload is no CloudEvent, though its content type says so: %s: %v", name, err)
		}
	}
	if attributes["specversion"] == "" {
		return posthaste.Invalidf("payload", "payload is no CloudEvent, though its content type says so: it has no specversion")
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
		// A text, as the standard has it.
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

// eventKey is the dedupe key of an event: two that are the same in source and id are
// one, and nothing less is.
func eventKey(source, id string) string {
	// A source is a URI reference, in which a space is written like this; so the first
	// space ends it.
	return DedupeKey(strings.ReplaceAll(source, " ", "%20") + " " + id)
}

// DedupeKey is a dedupe key for a broker's id of a message: the id, or where that
// cannot be one, for its length or its characters, its SHA-256 in hexadecimal.
func DedupeKey(id string) string {
	if len(id) <= posthaste.MaxWordBytes && utf8.ValidString(id) && strings.IndexByte(id, 0) < 0 {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256:" + hex.EncodeToString(sum[:])
}
