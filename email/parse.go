package email

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"unicode/utf8"
)

// Parse decodes a mail from JSON. It is strict: unknown and repeated fields, values of the
// wrong type and invalid UTF-8 are rejected, each with its field (see [Faults]). Field names
// are case-sensitive and lower case. [Email.Validate] checks the values.
func Parse(data []byte) (*Email, error) {
	if !utf8.Valid(data) {
		return nil, invalid("", "the mail is not valid UTF-8")
	}
	p := &parser{dec: json.NewDecoder(bytes.NewReader(data))}
	var e Email
	err := p.object("", func(key string) error { return p.email(key, &e) })
	if err == nil {
		if _, end := p.dec.Token(); !errors.Is(end, io.EOF) {
			err = invalid("", "the mail must be one JSON object, but more data follows it")
		}
	}
	if err != nil {
		return nil, err
	}
	if err := p.faults.err(); err != nil {
		return nil, err
	}
	return &e, nil
}

// parser walks the JSON of a mail token by token, so that it knows the path of each fault. Its
// methods return an error if the JSON itself is invalid. Other faults are gathered in faults.
type parser struct {
	dec    *json.Decoder
	faults faultList
}

const (
	aString    = "a string"
	stringList = "a list of strings"
)

func (p *parser) email(key string, e *Email) error {
	switch key {
	case "from":
		return p.value(key, aString, &e.From)
	case "to":
		return p.strings(key, &e.To)
	case "cc":
		return p.strings(key, &e.Cc)
	case "bcc":
		return p.strings(key, &e.Bcc)
	case "reply_to":
		return p.value(key, aString, &e.ReplyTo)
	case "subject":
		return p.value(key, aString, &e.Subject)
	case "text":
		return p.value(key, aString, &e.Text)
	case "html":
		return p.value(key, aString, &e.HTML)
	case "headers":
		return p.object(key, func(name string) error {
			if e.Headers == nil {
				e.Headers = map[string]string{}
			}
			var v string
			err := p.value(headerField(name), aString, &v)
			e.Headers[name] = v
			return err
		})
	case "attachments":
		return p.list(key, "a list of objects", func(i int) error {
			e.Attachments = append(e.Attachments, Attachment{})
			path := index(key, i)
			return p.object(path, func(key string) error {
				return p.attachment(path+"."+key, key, &e.Attachments[i])
			})
		})
	case "reference":
		return p.value(key, aString, &e.Reference)
	case "send_at":
		return p.value(key, `a time of RFC 3339, such as "2030-01-31T08:00:00Z"`, &e.SendAt)
	case "idempotency_key":
		return p.value(key, aString, &e.IdempotencyKey)
	}
	return p.unknown(key)
}

func (p *parser) attachment(path, key string, a *Attachment) error {
	switch key {
	case "filename":
		return p.value(path, aString, &a.Filename)
	case "content_type":
		return p.value(path, aString, &a.ContentType)
	case "content":
		return p.value(path, "a string of base64 (RFC 4648, with padding)", &a.Content)
	}
	return p.unknown(path)
}

// object reads one object and calls member where each value begins.
func (p *parser) object(path string, member func(key string) error) error {
	tok, err := p.dec.Token()
	if err != nil {
		return p.broken(err)
	}
	if tok != json.Delim('{') {
		if tok != nil || path == "" {
			p.wrongType(path, "a JSON object")
		}
		return p.skip(tok)
	}
	seen := map[string]bool{}
	for p.dec.More() {
		tok, err := p.dec.Token()
		if err != nil {
			return p.broken(err)
		}
		key, _ := tok.(string) // a decoder returns only strings as keys
		if seen[key] {
			p.faults.add(join(path, key), "is given twice")
		}
		seen[key] = true
		if err := member(key); err != nil {
			return err
		}
	}
	_, err = p.dec.Token()
	return p.broken(err)
}

// list reads one list and calls item where each item begins.
func (p *parser) list(path, what string, item func(i int) error) error {
	tok, err := p.dec.Token()
	if err != nil {
		return p.broken(err)
	}
	if tok != json.Delim('[') {
		if tok != nil {
			p.wrongType(path, what)
		}
		return p.skip(tok)
	}
	for i := 0; p.dec.More(); i++ {
		if err := item(i); err != nil {
			return err
		}
	}
	_, err = p.dec.Token()
	return p.broken(err)
}

func (p *parser) strings(path string, into *[]string) error {
	return p.list(path, stringList, func(i int) error {
		*into = append(*into, "")
		return p.value(index(path, i), aString, &(*into)[i])
	})
}

// value decodes the next value. The decoder reports a value of the wrong type only after it
// has read all of it, so the walk can continue behind it.
func (p *parser) value(path, what string, into any) error {
	err := p.dec.Decode(into)
	if err == nil {
		return nil
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return p.broken(err)
	}
	p.wrongType(path, what)
	return nil
}

func (p *parser) unknown(path string) error {
	p.faults.add(path, "is not a field of a mail")
	var skipped json.RawMessage
	return p.broken(p.dec.Decode(&skipped))
}

// skip reads to the end of the value that tok began.
func (p *parser) skip(tok json.Token) error {
	depth := 0
	for {
		switch tok {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
		var err error
		if tok, err = p.dec.Token(); err != nil {
			return p.broken(err)
		}
	}
}

func (p *parser) wrongType(path, what string) {
	if path == "" {
		p.faults.add("", "the mail must be %s", what)
		return
	}
	p.faults.add(path, "must be %s", what)
}

// broken returns the error for invalid JSON; nil stays nil.
func (p *parser) broken(err error) error {
	if err == nil {
		return nil
	}
	reason := "unexpected end of input"
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		reason = syntax.Error()
	}
	return invalid("", "the mail is not valid JSON near byte %d: %s", p.dec.InputOffset(), reason)
}

func join(path, key string) string {
	switch path {
	case "":
		return key
	case "headers":
		return headerField(key)
	}
	return path + "." + key
}
