// Package relay says what a message is to a broker, whichever that is: which
// texts are made of it by templates, which headers go along, and how it looks as
// a CloudEvent. It knows no network; the sinks that speak to brokers share it.
package relay

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	posthaste "github.com/posthaste-mq/posthaste"
)

// The headers under which a broker gets what it has no place of its own for.
// Those that would be empty are left out. A message's own headers go along under
// their names, but for those with one of these.
const (
	HeaderQueue     = "posthaste-queue"     // the queue that it came from
	HeaderKind      = "posthaste-kind"      // its kind
	HeaderKey       = "posthaste-key"       // its key
	HeaderReference = "posthaste-reference" // its reference
	HeaderAttempt   = "posthaste-attempt"   // from the second attempt on: it may have come before
)

// Mapping is what can be told about all messages of a relay. The zero value
// passes payload, content type and headers on as they are.
type Mapping struct {
	// MessageID is the template of the id by which receivers know a message
	// again (default "{{.MessageID}}"). Message ids are unique in one database:
	// where several relay to one broker, tell them apart, as by
	// "orders-{{.MessageID}}". It must give the same for the same message, so that one
	// with .Attempt is refused.
	MessageID string `yaml:"message_id"`
	// Headers are templates of further headers, by name. One that comes out
	// empty is left out.
	Headers map[string]string `yaml:"headers"`
	// CloudEvents, if set, makes each message a CloudEvent 1.0.
	CloudEvents *CloudEvents `yaml:"cloudevents"`
}

// Outgoing is a message as a broker shall get it.
type Outgoing struct {
	MessageID   string
	ContentType string
	Payload     []byte
	// Headers are in the order of their names, which are unique.
	Headers []Header
}

// Header is a header's name and value.
type Header struct{ Name, Value string }

// Mapper makes outgoing messages by a [Mapping]. It is safe for concurrent use.
type Mapper struct {
	id      *Template
	headers []namedTemplate
	events  *eventMapper
}

type namedTemplate struct {
	name  string
	value *Template
}

// NewMapper checks a mapping. prefix goes before the attributes of a CloudEvent
// in binary mode, as the protocol's binding says: "ce_" for Kafka. Errors are
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
		return nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "message_id", Message: "the template message_id names .Attempt: with another id at each attempt receivers could not know the message again",
			Hint: "leave it out; from the second attempt on it goes along as header " + HeaderAttempt}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		if name == "" {
			return nil, posthaste.Invalidf("headers", "headers has an entry without a name")
		}
		value, err := Compile("headers."+name, m.Headers[name])
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

// Map makes the outgoing message of a delivery. Errors are for good: the same
// message gives the same again.
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
		return Outgoing{}, posthaste.Permanent(posthaste.Invalidf("message_id", "the template message_id came out empty: receivers could not know the message again"))
	}
	headers := make(map[string]string, len(d.Headers)+len(m.headers)+5)
	maps.Copy(headers, d.Headers)
	for _, name := range [...]string{HeaderQueue, HeaderKind, HeaderKey, HeaderReference, HeaderAttempt} {
		delete(headers, name) // a sender's own would pass as ours
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
	for _, h := range [...]Header{{HeaderQueue, d.Queue}, {HeaderKind, d.Kind}, {HeaderKey, d.Key}, {HeaderReference, d.Reference}} {
		if h.Value != "" {
			headers[h.Name] = h.Value
		}
	}
	if d.Attempt > 1 {
		headers[HeaderAttempt] = strconv.Itoa(d.Attempt)
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
