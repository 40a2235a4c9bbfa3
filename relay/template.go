package relay

import (
	"fmt"
	"strconv"
	"strings"
	"text/template"

	"github.com/posthaste-mq/posthaste"
)

// fields are the fields that a template can use.
type fields struct {
	Queue, Subscription, Kind, Key, Reference, MessageID, ContentType string
	Attempt                                                           int
	Headers                                                           map[string]string
}

// fieldNames lists them for error messages.
const fieldNames = ".Queue .Subscription .Kind .Key .Reference .MessageID .ContentType .Attempt .Headers"

// Template makes a text from a message, such as a topic, a routing key or a header. It is
// a Go template (text/template) over the fields Queue, Subscription, Kind, Key, Reference,
// MessageID, ContentType, Attempt and Headers, such as
//
//	orders.{{.Kind}}
//	{{.Headers.region}}                        dead-lettered if the header is missing
//	{{or (index .Headers "region") "eu"}}      with a default
//
// It is safe for concurrent use.
type Template struct {
	field  string
	text   string // of a template without fields
	simple string // the field of a template that consists of one field
	parsed *template.Template
}

// Field is the name of a setting in errors, such as "topic".
type Field string

// Compile validates a template. field names it in errors, which are *posthaste.Error.
// Compile finds unknown fields of a message; a header that a message does not have is an
// error of Execute.
func Compile(field Field, text string) (*Template, error) {
	t := &Template{field: string(field), text: text}
	if !strings.Contains(text, "{{") {
		return t, nil
	}
	if name, ok := strings.CutPrefix(text, "{{."); ok {
		if name, ok = strings.CutSuffix(name, "}}"); ok {
			if _, ok := t.plain(name, &posthaste.RawDelivery{}); ok {
				t.simple = name
				return t, nil
			}
		}
	}
	parsed, err := template.New(t.field).Option("missingkey=error").Parse(text)
	if err == nil {
		// A trial run with any header finds unknown fields.
		var sample *template.Template
		if sample, err = parsed.Clone(); err == nil {
			err = sample.Option("missingkey=zero").Execute(&strings.Builder{}, &fields{Headers: map[string]string{}})
		}
	}
	if err != nil {
		return nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: t.field, Message: fmt.Sprintf("invalid template %s: %v", field, err),
			Hint: "use a Go template over " + fieldNames + `, such as orders.{{.Kind}} or {{or (index .Headers "region") "eu"}}`}
	}
	t.parsed = parsed
	return t, nil
}

// Static returns the template's text if it is the same for all messages.
func (t *Template) Static() (string, bool) { return t.text, t.parsed == nil && t.simple == "" }

// Execute returns the text of a message. Errors are permanent, because the same message
// always gives the same error.
func (t *Template) Execute(d *posthaste.RawDelivery) (string, error) {
	if t.simple != "" {
		text, _ := t.plain(t.simple, d)
		return text, nil
	}
	if t.parsed == nil {
		return t.text, nil
	}
	var b strings.Builder
	err := t.parsed.Execute(&b, &fields{Queue: d.Queue, Subscription: d.Subscription, Kind: d.Kind, Key: d.Key, Reference: d.Reference,
		MessageID: messageID(d), ContentType: d.ContentType, Attempt: d.Attempt, Headers: d.Headers})
	if err != nil {
		return "", posthaste.Permanent(&posthaste.Error{Code: posthaste.CodeInvalid, Field: t.field, Message: fmt.Sprintf("the template %s fails for this message: %v", t.field, err),
			Hint: `set a default for values that may be missing: {{or (index .Headers "region") "eu"}}`})
	}
	return b.String(), nil
}

// plain returns the field of a name without running a template, if the field is a string.
func (t *Template) plain(name string, d *posthaste.RawDelivery) (string, bool) {
	switch name {
	case "Queue":
		return d.Queue, true
	case "Subscription":
		return d.Subscription, true
	case "Kind":
		return d.Kind, true
	case "Key":
		return d.Key, true
	case "Reference":
		return d.Reference, true
	case "MessageID":
		return messageID(d), true
	case "ContentType":
		return d.ContentType, true
	}
	return "", false
}

func messageID(d *posthaste.RawDelivery) string { return strconv.FormatInt(int64(d.MessageID), 10) }
