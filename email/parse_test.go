package email

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

const fullMail = `{"from":"Ada <ada@example.com>","to":["b@example.com","Zoë <zoe@example.com>"],"cc":["c@example.com"],
"bcc":["d@example.com"],"reply_to":"r@example.com","subject":"Grüße","text":"hello","html":"<p>hello</p>",
"headers":{"X-Foo":"bar"},"attachments":[{"filename":"a.txt","content_type":"text/plain","content":"aGk="}],
"reference":"order-7","send_at":"2030-01-31T08:00:00+01:00"}`

func TestParse(t *testing.T) {
	t.Parallel()
	e, err := Parse([]byte(fullMail))
	if err != nil {
		t.Fatal(err)
	}
	want := &Email{
		From: "Ada <ada@example.com>", To: []string{"b@example.com", "Zoë <zoe@example.com>"}, Cc: []string{"c@example.com"},
		Bcc: []string{"d@example.com"}, ReplyTo: "r@example.com", Subject: "Grüße", Text: "hello", HTML: "<p>hello</p>",
		Headers:     map[string]string{"X-Foo": "bar"},
		Attachments: []Attachment{{Filename: "a.txt", ContentType: "text/plain", Content: []byte("hi")}},
		Reference:   "order-7", SendAt: e.SendAt,
	}
	if !reflect.DeepEqual(e, want) || !e.SendAt.Equal(time.Date(2030, 1, 31, 7, 0, 0, 0, time.UTC)) {
		t.Fatalf("got %+v", e)
	}
	if err := e.Validate(); err != nil {
		t.Fatal(err)
	}
	m, err := e.Message()
	if err != nil {
		t.Fatal(err)
	}
	if m.Queue != "emails" || m.Reference != "order-7" || !m.SendAt.Equal(e.SendAt) || len(m.Terms) != 4 {
		t.Fatalf("message %+v", m)
	}
	body, _, err := m.Body()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(body)
	if err != nil {
		t.Fatal(err)
	}
	if !again.SendAt.Equal(e.SendAt) {
		t.Fatal("send_at changed")
	}
	again.SendAt = e.SendAt
	if !reflect.DeepEqual(e, again) {
		t.Fatalf("the payload of the message is read as %+v", again)
	}
}

func TestParseRefusesByName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, field string }{
		{``, ""}, {`null`, ""}, {`[]`, ""}, {`"x"`, ""}, {`{`, ""}, {`{"from":"a"} {}`, ""}, {`{"from"}`, ""},
		{"{\"from\":\"\xff\"}", ""}, {`{"from":"a",}`, ""}, {`[[{"a":1}]]`, ""},
		{`{"form":"a"}`, "form"}, {`{"From":"a"}`, "From"}, {`{"x":{"deep":[1,{"er":2}]},"from":"a"}`, "x"},
		{`{"from":1}`, "from"}, {`{"from":"a","from":"b"}`, "from"}, {`{"from":["a"]}`, "from"},
		{`{"to":"a"}`, "to"}, {`{"to":{"a":"b"}}`, "to"}, {`{"to":["a","b","c",4]}`, "to[3]"}, {`{"cc":[[]]}`, "cc[0]"},
		{`{"bcc":[{}]}`, "bcc[0]"}, {`{"reply_to":["a"]}`, "reply_to"}, {`{"subject":true}`, "subject"},
		{`{"headers":[]}`, "headers"}, {`{"headers":{"X-Foo":["a"]}}`, "headers.X-Foo"}, {`{"headers":{"A":"1","A":"2"}}`, "headers.A"},
		{`{"attachments":{}}`, "attachments"}, {`{"attachments":["a"]}`, "attachments[0]"},
		{`{"attachments":[{},{"content":"%"}]}`, "attachments[1].content"},
		{`{"attachments":[{"content":7}]}`, "attachments[0].content"},
		{`{"attachments":[{"name":"a"}]}`, "attachments[0].name"},
		{`{"send_at":"tomorrow"}`, "send_at"}, {`{"send_at":12}`, "send_at"},
		{`{"idempotency_key":3}`, "idempotency_key"},
	} {
		_, err := Parse([]byte(c.in))
		if posthaste.CodeOf(err) != posthaste.CodeInvalid {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		if f := Faults(err)[0]; f.Field != c.field || !strings.HasPrefix(f.Message, f.Field) {
			t.Errorf("%s: field %q (%s), want %q", c.in, f.Field, f.Message, c.field)
		}
	}
}

func TestParseReportsAllFaults(t *testing.T) {
	t.Parallel()
	_, err := Parse([]byte(`{"form":1,"to":[1,"a",2],"attachments":[{"content":"%","x":1}]}`))
	var fields []string
	for _, f := range Faults(err) {
		fields = append(fields, f.Field)
	}
	want := []string{"form", "to[0]", "to[2]", "attachments[0].content", "attachments[0].x"}
	if !reflect.DeepEqual(fields, want) {
		t.Fatalf("fields %q, want %q", fields, want)
	}
	for _, f := range want {
		if !strings.Contains(err.Error(), f) {
			t.Errorf("%q is not in %q", f, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(fullMail))
	f.Add([]byte(`{"from":"a@b","to":["c@d"],"text":"x","headers":{"A":"b"},"attachments":[{"filename":"é","content":""}]}`))
	f.Add([]byte(`{"to":[[[[1]]]],"attachments":[{"content":{}}],"x":{"y":[}`))
	f.Add([]byte(`{"from":"a@b","to":["é@d"],"subject":" a  b ","html":"=\r\n.","headers":{"List-Id":"=?utf-8?q?x?="}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := Parse(data)
		if err != nil {
			if posthaste.CodeOf(err) != posthaste.CodeInvalid || err.Error() == "" {
				t.Fatalf("%q: %v", data, err)
			}
			return
		}
		if !json.Valid(data) {
			t.Fatalf("%q is no JSON", data)
		}
		if e.Validate() != nil {
			return
		}
		checkComposed(t, e)
	})
}
