package posthaste

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// hexCodec encodes integers as hexadecimal digits.
type hexCodec struct{ types []string }

func (c hexCodec) ContentTypes() []string { return c.types }
func (c hexCodec) Encode(value any) ([]byte, error) {
	n, ok := value.(int)
	if !ok {
		return nil, errors.New("no integer")
	}
	return fmt.Appendf(nil, "%x", n), nil
}
func (c hexCodec) Decode(payload []byte, into any) error {
	n, err := fmt.Sscanf(string(payload), "%x", into)
	if n != 1 {
		return fmt.Errorf("no hexadecimal number: %w", err)
	}
	return nil
}

var hex = hexCodec{[]string{"text/hex", "text/x-hex"}}

func TestBody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		payload     any
		codec       Codec
		contentType string
		body, as    string
		field       string
	}{
		{nil, nil, "", "null", ContentTypeJSON, ""},
		{7, nil, "", "7", ContentTypeJSON, ""},
		{"x", nil, "", `"x"`, ContentTypeJSON, ""},
		{"x", nil, "application/problem+json", `"x"`, "application/problem+json", ""},
		{"x", nil, "text/plain; charset=utf-8", "x", "text/plain; charset=utf-8", ""},
		{[]byte("x"), nil, "", "x", ContentTypeBytes, ""},
		{[]byte("x"), nil, "text/plain", "x", "text/plain", ""},
		{json.RawMessage("[1]"), nil, "", "[1]", ContentTypeJSON, ""},
		{255, hex, "", "ff", "text/hex", ""},
		{255, hex, "Text/X-Hex; a=b", "ff", "Text/X-Hex; a=b", ""},
		{[]byte("ff"), hex, "", "ff", "text/hex", ""},
		{"x", hex, "", "", "", "payload"},
		{nil, hex, "", "", "", "payload"},
		{json.RawMessage("1"), hex, "", "", "", "payload"},
		{255, hex, "text/plain", "", "", "content_type"},
		{[]byte("ff"), hex, "text/plain", "", "", "content_type"},
		{255, hexCodec{}, "", "", "", "codec"},
		{7, nil, "text/plain", "", "", "content_type"},
		{nil, nil, "text/plain", "", "", "content_type"},
		{make(chan int), nil, "", "", "", "payload"},
	} {
		m := Message{Queue: "q", Payload: c.payload, Codec: c.codec, ContentType: c.contentType}
		body, as, err := m.Body()
		var e *Error
		if errors.As(err, &e); c.field != "" {
			if e == nil || e.Code != CodeInvalid || e.Field != c.field {
				t.Errorf("%+v: error %v, want one of %s", c, err, c.field)
			}
		} else if err != nil || string(body) != c.body || as != c.as {
			t.Errorf("%+v: %s as %s, %v", c, body, as, err)
		}
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		payload, contentType string
		codecs               []Codec
		into                 any // points to a zero value
		want                 any
		fails                string
	}{
		{"7", "", nil, new(int), 7, ""},
		{"7", "Application/JSON; charset=utf-8", nil, new(int), 7, ""},
		{`{"a":1}`, "application/problem+json", nil, new(map[string]int), map[string]int{"a": 1}, ""},
		{`{"a":1}`, "text/plain", nil, new(string), `{"a":1}`, ""},
		{`"x"`, "", nil, new(string), "x", ""},
		{"ff", "text/hex", []Codec{hex}, new(int), 255, ""},
		{"ff", "text/x-hex;a=b", []Codec{hexCodec{[]string{"text/other"}}, hex}, new(int), 255, ""},
		{"10", ContentTypeJSON, []Codec{hexCodec{[]string{ContentTypeJSON}}}, new(int), 16, ""},
		{"ff", "text/hex", []Codec{hex}, new([]byte), []byte("ff"), ""},
		{"ff", "text/hex", []Codec{hex}, new(json.RawMessage), json.RawMessage("ff"), ""},
		{"zz", "text/hex", []Codec{hex}, new(int), nil, "no hexadecimal number"},
		{"6869", "text/hex", []Codec{hex}, new(string), "hi", ""},
		{"ff", "text/hex", nil, new(int), nil, `no codec for content type "text/hex"`},
		{"x", "", nil, new(int), nil, "cannot be decoded as JSON into *int"},
	} {
		err := Decode(RawDelivery{Payload: []byte(c.payload), ContentType: c.contentType}, c.into, c.codecs...)
		if c.fails != "" {
			var e *Error
			if !errors.As(err, &e) || e.Code == "" || e.Field == "" || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%+v: error %v", c, err)
			}
		} else if got := reflect.ValueOf(c.into).Elem().Interface(); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
}

// Any input is decoded or rejected, and never causes a panic.
func FuzzDecodeJSON(f *testing.F) {
	for _, seed := range []string{"null", `{"a":[1,"x",{}]}`, `"\u0000"`, "[[[[", "1e999", "{\"a\":\xff}", strings.Repeat("[", 20000)} {
		f.Add([]byte(seed), ContentTypeJSON)
	}
	f.Add([]byte("x"), "text/plain;;;")
	f.Fuzz(func(t *testing.T, payload []byte, contentType string) {
		var value struct {
			A []any
			B map[string]json.RawMessage
			C *int
			D string
		}
		for _, into := range []any{new(any), &value, new(string), new([]byte), new(json.RawMessage)} {
			err := Decode(RawDelivery{Payload: payload, ContentType: contentType}, into)
			var e *Error
			if err != nil && !errors.As(err, &e) {
				t.Errorf("the error names nothing: %v", err)
			}
		}
	})
}

// Each sender encodes its own messages: a message that cannot be encoded fails alone and
// reaches no batch.
func TestClientEncodesByCodec(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newSendEngine()
		e.hold = make(chan struct{})
		var bodies []string
		e.answer = func(_ context.Context, messages []Message) error {
			for i := range messages {
				body, contentType, err := messages[i].Body()
				bodies = append(bodies, fmt.Sprintf("%s %s %v", body, contentType, err))
			}
			return nil
		}
		c := NewClient(e)
		answers := gathering(t, c, e, nil, Message{Queue: "q", Key: "a", Payload: 255, Codec: hex})
		for _, payload := range []any{"x", nil} {
			if _, err := c.Send(context.Background(), Message{Queue: "q", Payload: payload, Codec: hex}); CodeOf(err) != CodeInvalid {
				t.Errorf("%v: error %v, want it refused at once", payload, err)
			}
		}
		close(e.hold)
		for range 2 {
			if a := <-answers; a.err != nil {
				t.Error(a.err)
			}
		}
		if want := []string{"first application/octet-stream <nil>", "ff text/hex <nil>"}; !slices.Equal(bodies, want) {
			t.Errorf("sent were %q, want %q", bodies, want)
		}
	})
}
