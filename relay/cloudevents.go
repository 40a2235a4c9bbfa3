package relay

import (
	"encoding/json"
	"mime"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Modes of [CloudEvents]: attributes as headers beside the payload, or the whole event as
// one JSON document.
const (
	Binary     = "binary"
	Structured = "structured"
)

// contentTypeEvent is the content type of a CloudEvent in JSON.
const contentTypeEvent = "application/cloudevents+json; charset=UTF-8"

// CloudEvents configures how messages become CloudEvents
// (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md). The attribute id
// is the message id of the mapping, time is when the message was sent, and datacontenttype
// is its content type.
type CloudEvents struct {
	// Mode is "binary" (default) or "structured".
	Mode string `yaml:"mode"`
	// Source is the template of the attribute source, a URI reference such as "/orders".
	// Required.
	Source string `yaml:"source"`
	// Type is the template of the attribute type (default "{{.Kind}}"). If it yields an
	// empty string, the message is dead-lettered, because the standard requires a type.
	Type string `yaml:"type"`
	// Subject is the template of the attribute subject (default "{{.Key}}"). The event
	// has no subject if it yields an empty string.
	Subject string `yaml:"subject"`
}

// eventMapper is a validated CloudEvents.
type eventMapper struct {
	prefix                string
	structured            bool
	source, kind, subject *Template
}

func (c *CloudEvents) mapper(prefix string) (*eventMapper, error) {
	m := &eventMapper{prefix: prefix, structured: c.Mode == Structured}
	if c.Mode != "" && c.Mode != Binary && c.Mode != Structured {
		return nil, posthaste.Invalidf("cloudevents.mode", "cloudevents.mode must be binary or structured, got %q", c.Mode)
	}
	if c.Source == "" {
		return nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "cloudevents.source", Message: "cloudevents.source is missing", Hint: "set it to the sender of the events, such as /orders"}
	}
	for _, t := range []struct {
		to              **Template
		field, text, by string
	}{{&m.source, "source", c.Source, ""}, {&m.kind, "type", c.Type, "{{.Kind}}"}, {&m.subject, "subject", c.Subject, "{{.Key}}"}} {
		text := t.text
		if text == "" {
			text = t.by
		}
		var err error
		if *t.to, err = Compile(Field("cloudevents."+t.field), text); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// event is a CloudEvent in JSON, with its members in the order of the standard.
type event struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Source          string          `json:"source"`
	Type            string          `json:"type"`
	DataContentType string          `json:"datacontenttype,omitempty"`
	Subject         string          `json:"subject,omitempty"`
	Time            string          `json:"time,omitempty"`
	TraceParent     string          `json:"traceparent,omitempty"`
	TraceState      string          `json:"tracestate,omitempty"`
	Data            json.RawMessage `json:"data,omitempty"`
	DataBase64      []byte          `json:"data_base64,omitempty"`
}

// apply turns the message into a CloudEvent.
func (m *eventMapper) apply(d *posthaste.RawDelivery, out *Outgoing, headers map[string]string) error {
	e := event{SpecVersion: "1.0", ID: out.MessageID, DataContentType: out.ContentType,
		TraceParent: d.Headers[posthaste.HeaderTraceParent], TraceState: d.Headers[posthaste.HeaderTraceState]}
	if !d.CreatedAt.IsZero() {
		e.Time = d.CreatedAt.UTC().Format(time.RFC3339Nano)
	}
	for _, t := range []struct {
		to       *string
		template *Template
		required bool
	}{{&e.Source, m.source, true}, {&e.Type, m.kind, true}, {&e.Subject, m.subject, false}} {
		text, err := t.template.Execute(d)
		if err != nil {
			return err
		}
		if text == "" && t.required {
			return posthaste.Permanent(&posthaste.Error{Code: posthaste.CodeInvalid, Field: t.template.field,
				Message: t.template.field + " is empty, and a CloudEvent requires it", Hint: "send messages with a kind, or set a template that yields another text"})
		}
		*t.to = text
	}
	if !m.structured {
		for _, a := range [...]Header{{"specversion", e.SpecVersion}, {"id", e.ID}, {"source", e.Source}, {"type", e.Type}, {"subject", e.Subject},
			{"time", e.Time}, {"traceparent", e.TraceParent}, {"tracestate", e.TraceState}} {
			if a.Value != "" {
				headers[m.prefix+a.Name] = a.Value
			}
		}
		return nil
	}
	if isJSON(out.ContentType) && json.Valid(out.Payload) {
		e.Data = out.Payload
	} else {
		e.DataBase64 = out.Payload
	}
	encoded, err := json.Marshal(e)
	if err != nil {
		return posthaste.Permanent(err) // cannot happen: all of it is text or valid JSON
	}
	out.Payload, out.ContentType = encoded, contentTypeEvent
	return nil
}

// isJSON reports whether the content type is one of JSON.
func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == posthaste.ContentTypeJSON || strings.HasSuffix(media, "+json"))
}
