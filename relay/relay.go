// Package relay maps messages to broker messages for all broker sinks: it renders templates,
// sets headers, and builds CloudEvents ([Mapper]). [Chunks] packs several messages into one
// broker message. [Connections] keeps the connections of a sink.
package relay

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/posthaste-mq/posthaste"
)

// Headers for fields of a message that brokers do not have. Empty ones are omitted. The
// message's own headers keep their names, but cannot replace one of these.
const (
	HeaderQueue     = "posthaste-queue"     // the queue of the message
	HeaderKind      = "posthaste-kind"      // its kind
	HeaderKey       = "posthaste-key"       // its key
	HeaderReference = "posthaste-reference" // its reference
	HeaderAttempt   = "posthaste-attempt"   // from the second attempt on; the message may be a duplicate
)

// ownHeaders are these headers with their values.
var ownHeaders = []struct {
	name  string
	value func(d *posthaste.RawDelivery) string
}{
	{HeaderQueue, func(d *posthaste.RawDelivery) string { return d.Queue }},
	{HeaderKind, func(d *posthaste.RawDelivery) string { return d.Kind }},
	{HeaderKey, func(d *posthaste.RawDelivery) string { return d.Key }},
	{HeaderReference, func(d *posthaste.RawDelivery) string { return d.Reference }},
	{HeaderAttempt, func(d *posthaste.RawDelivery) string {
		if d.Attempt > 1 {
			return strconv.Itoa(d.Attempt)
		}
		return ""
	}},
}

// Mapping is the configuration that all messages of a relay share. The zero value passes
// payload, content type and headers on unchanged.
type Mapping struct {
	// MessageID is the template of the deduplication id for consumers (default
	// "{{.MessageID}}"). Message ids are unique in one database only. If several
	// databases relay to one broker, use a prefix, such as "orders-{{.MessageID}}". All
	// attempts must have the same id, so .Attempt is not allowed.
	MessageID string `yaml:"message_id"`
	// Headers are templates of further headers, by name. A header whose template
	// yields an empty string is omitted.
	Headers map[string]string `yaml:"headers"`
	// CloudEvents, if set, makes each message a CloudEvent 1.0.
	CloudEvents *CloudEvents `yaml:"cloudevents"`
}

// Outgoing is a message to publish to a broker.
type Outgoing struct {
	MessageID   string
	ContentType string
	Payload     []byte
	// Headers are sorted by name. Names are unique.
	Headers []Header
}

// Header is a header's name and value.
type Header struct{ Name, Value string }

// Mapper maps messages by a [Mapping]. It is safe for concurrent use.
type Mapper struct {
	id      *Template
	headers []namedTemplate
	events  *eventMapper
}

type namedTemplate struct {
	name  string
	value *Template
}

// NewMapper validates a mapping. prefix precedes the attributes of a CloudEvent in binary
// mode, as the binding of the protocol defines it, such as "ce_" for Kafka. Errors are
// *posthaste.Error with the field, such as "headers.region".
func NewMapper(m Mapping, prefix string) (*Mapper, error) {
	text := m.MessageID
	if text == "" {
		text = "{{.MessageID}}"
	}
	out := &Mapper{}
	var err error
	if out.id, err = Compile("message_id", text); err != nil {
		return nil, err
	}
	if strings.Contains(text, ".Attempt") {
		return nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "message_id", Message: "the template message_id uses .Attempt: consumers could not deduplicate a message whose id changes with each attempt",
			Hint: "remove it; from the second attempt on, messages have the header " + HeaderAttempt}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		if name == "" {
			return nil, posthaste.Invalidf("headers", "headers has an entry without a name")
		}
		value, err := Compile(Field("headers."+name), m.Headers[name])
		if err != nil {
			return nil, err
		}
		out.headers = append(out.headers, namedTemplate{name, value})
	}
	if m.CloudEvents != nil {
		if out.events, err = m.CloudEvents.mapper(prefix); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Map returns the outgoing message of a delivery. Errors are permanent, because the same
// message always gives the same error.
func (m *Mapper) Map(d *posthaste.RawDelivery) (Outgoing, error) {
	out := Outgoing{ContentType: d.ContentType, Payload: d.Payload}
	if out.ContentType == "" {
		out.ContentType = posthaste.ContentTypeJSON
	}
	var err error
	if out.MessageID, err = m.id.Execute(d); err != nil {
		return Outgoing{}, err
	}
	if out.MessageID == "" {
		return Outgoing{}, posthaste.Permanent(posthaste.Invalidf("message_id", "the template message_id yields an empty string: consumers could not deduplicate the message"))
	}
	headers := make(map[string]string, len(d.Headers)+len(m.headers)+5)
	maps.Copy(headers, d.Headers)
	for _, own := range ownHeaders {
		delete(headers, own.name) // because consumers would take a sender's for it
	}
	for _, h := range m.headers {
		value, err := h.value.Execute(d)
		if err != nil {
			return Outgoing{}, err
		}
		if value != "" {
			headers[h.name] = value
		}
	}
	for _, own := range ownHeaders {
		if value := own.value(d); value != "" {
			headers[own.name] = value
		}
	}
	if m.events != nil {
		if err := m.events.apply(d, &out, headers); err != nil {
			return Outgoing{}, err
		}
	}
	out.Headers = make([]Header, 0, len(headers))
	for name, value := range headers {
		out.Headers = append(out.Headers, Header{name, value})
	}
	slices.SortFunc(out.Headers, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}
