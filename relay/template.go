package relay

import (
	"fmt"
	"strconv"
	"strings"
	"text/template"

	posthaste "github.com/posthaste-mq/posthaste"
)

// fields are what a template can name.
type fields struct {
	Queue, Subscription, Kind, Key, Reference, MessageID, ContentType string
	Attempt                                                           int
	Headers                                                           map[string]string
}

// fieldNames is for messages to people.
const fieldNames = ".Queue .Subscription .Kind .Key .Reference .MessageID .ContentType .Attempt .Headers"

// Template makes a text of a message: a topic, a routing key, a header. It is a
// Go template (text/template) over the fields Queue, Subscription, Kind, Key,
// Reference, MessageID, ContentType, Attempt and Headers, as in
//
//	orders.{{.Kind}}
//	{{.Headers.region}}                        dead where the header is missing
//	{{or (index .Headers "region") "eu"}}      with a default
//
// It is safe for concurrent use.
type Template struct {
	field  string
	text   string // of a template without fields
	simple string // the one field that it consists of
	parsed *template.Template
}

// Compile checks a template; field names it in errors, which are
// *posthaste.Error. What names no field of a message is found here, what names a
// header that a message does not have is an error of that message.
func Compile(field, text string) (*Template, error) {
	t := &Template{field: field, text: text}
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
	parsed, err := template.New(field).Option("missingkey=error").Parse(text)
	if err == nil {
		// Unknown fields are found by making a text once, with any header there.
		var sample *template.Template
		if sample, err = parsed.Clone(); err == nil {
			err = sample.Option("missingkey=zero").Execute(&strings.Builder{}, &fields{Headers: map[string]string{}})
		}
	}
	if err != nil {
		return nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: field, Message: fmt.Sprintf("the template %s cannot be used: %v", field, err),
			Hint: "a Go template over " + fieldNames + `, such as orders.{{.Kind}} or {{or (index .Headers "region") "eu"}}`}
	}
	t.parsed = parsed
	return t, nil
}

// Static returns the template's text if it is the same for all messages.
func (t *Template) Static() (string, bool) { return t.text, t.parsed == nil && t.simple == "" }

// Execute makes the text of a message. Its errors are permanent, for the same
// message gives the same again.
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
		return "", posthaste.Permanent(&posthaste.Error{Code: posthaste.CodeInvalid, Field: t.field, Message: fmt.Sprintf("the template %s cannot be used on this message: %v", t.field, err),
			Hint: `give what may be missing a default: {{or (index .Headers "region") "eu"}}`})
	}
	return b.String(), nil
}

// plain is the field of that name without a template's detour, if it is a text.
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
