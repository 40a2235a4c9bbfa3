package relay

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

func sample() *posthaste.RawDelivery {
	return &posthaste.RawDelivery{MessageID: 12, Queue: "orders", Subscription: "default", Attempt: 1, Kind: "order.placed", Key: "customer-7", Reference: "A-1",
		Headers: map[string]string{"region": "eu"}, Payload: []byte(`{"a": 1}`), CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)}
}

func TestTemplate(t *testing.T) {
	d := sample()
	for text, want := range map[string]string{
		"plain": "plain", "": "", "{{.Kind}}": "order.placed", "{{.MessageID}}": "12", "{{.Queue}}.{{.Kind}}": "orders.order.placed",
		"{{.Headers.region}}": "eu", `{{or (index .Headers "none") "us"}}`: "us", "{{.Attempt}}": "1", "{{ .Key }}": "customer-7",
		"{{.Subscription}}{{.Reference}}{{.ContentType}}": "defaultA-1",
	} {
		c, err := Compile("topic", text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		got, err := c.Execute(d)
		if _, static := c.Static(); got != want || err != nil || static != !strings.Contains(text, "{{") {
			t.Errorf("%q gives %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"{{.Nothing}}", "{{", "{{.Kind.Of}}", "{{call .Kind}}"} {
		_, err := Compile("topic", text)
		var e *posthaste.Error
		if !errors.As(err, &e) || e.Field != "topic" || e.Hint == "" {
			t.Errorf("%q: %v", text, err)
		}
	}
	c, err := Compile("topic", "{{.Headers.none}}")
	if err != nil {
		t.Fatal(err)
	}
	for _, headers := range []map[string]string{nil, {"region": "eu"}} {
		d.Headers = headers
		if got, err := c.Execute(d); !posthaste.IsPermanent(err) || !strings.Contains(err.Error(), "none") {
			t.Errorf("a missing header gives %q, %v", got, err)
		}
	}
}

func TestMap(t *testing.T) {
	m, err := NewMapper(Mapping{MessageID: "db1-{{.MessageID}}", Headers: map[string]string{"tenant": "{{.Headers.region}}", "posthaste-queue": "no", "empty": ""}}, "ce_")
	if err != nil {
		t.Fatal(err)
	}
	d := sample()
	d.Attempt = 3
	before := maps.Clone(d.Headers)
	out, err := m.Map(d)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for i, h := range out.Headers {
		if got[h.Name] = h.Value; i > 0 && out.Headers[i-1].Name >= h.Name {
			t.Errorf("headers are not in order: %v", out.Headers)
		}
	}
	want := map[string]string{"region": "eu", "tenant": "eu", HeaderQueue: "orders", HeaderKind: "order.placed", HeaderKey: "customer-7", HeaderReference: "A-1", HeaderAttempt: "3"}
	if !maps.Equal(got, want) || out.MessageID != "db1-12" || out.ContentType != posthaste.ContentTypeJSON || string(out.Payload) != `{"a": 1}` {
		t.Errorf("got %+v", out)
	}
	if !maps.Equal(d.Headers, before) {
		t.Error("the delivery's headers changed")
	}
	// A sender cannot set the relay's own headers.
	d.Attempt, d.Kind = 1, ""
	d.Headers = map[string]string{HeaderAttempt: "7", HeaderKind: "forged", HeaderReference: "A-1", "region": "eu"}
	if out, err = m.Map(d); err != nil {
		t.Fatal(err)
	}
	for _, h := range out.Headers {
		if h.Name == HeaderAttempt || h.Name == HeaderKind || h.Value == "forged" {
			t.Errorf("header %s is %q", h.Name, h.Value)
		}
	}
	m, _ = NewMapper(Mapping{MessageID: "{{.Reference}}"}, "")
	d.Reference = ""
	if _, err := m.Map(d); !posthaste.IsPermanent(err) {
		t.Errorf("no message id: %v", err)
	}
}

// A message id must not depend on the attempt.
func TestMessageIDWithoutTheAttempt(t *testing.T) {
	for _, text := range []string{"{{.Attempt}}", "{{.MessageID}}-{{$.Attempt}}", "{{with .Kind}}{{$.Attempt}}{{end}}", `{{printf "%s-%d" .MessageID .Attempt}}`} {
		_, err := NewMapper(Mapping{MessageID: text}, "")
		var e *posthaste.Error
		if !errors.As(err, &e) || e.Code != posthaste.CodeInvalid || e.Field != "message_id" || !strings.Contains(e.Hint, HeaderAttempt) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := NewMapper(Mapping{MessageID: "{{.MessageID}}", Headers: map[string]string{"n": "{{.Attempt}}"}}, ""); err != nil {
		t.Error(err)
	}
}

func TestCloudEvents(t *testing.T) {
	for _, c := range []CloudEvents{{}, {Source: "/x", Mode: "both"}, {Source: "{{.X}}"}, {Source: "/x", Type: "{{.X}}"}} {
		if _, err := NewMapper(Mapping{CloudEvents: &c}, ""); posthaste.CodeOf(err) != posthaste.CodeInvalid {
			t.Errorf("%+v: %v", c, err)
		}
	}
	d := sample()
	d.Headers["traceparent"] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	binary, err := NewMapper(Mapping{CloudEvents: &CloudEvents{Source: "/shop"}}, "ce_")
	if err != nil {
		t.Fatal(err)
	}
	out, err := binary.Map(d)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, h := range out.Headers {
		if name, ok := strings.CutPrefix(h.Name, "ce_"); ok {
			got[name] = h.Value
		}
	}
	want := map[string]string{"specversion": "1.0", "id": "12", "source": "/shop", "type": "order.placed", "subject": "customer-7",
		"time": "2026-01-02T03:04:05.000006Z", "traceparent": d.Headers["traceparent"]}
	if !maps.Equal(got, want) || string(out.Payload) != `{"a": 1}` || out.ContentType != posthaste.ContentTypeJSON {
		t.Errorf("binary: %v, %+v", got, out)
	}

	structured, err := NewMapper(Mapping{CloudEvents: &CloudEvents{Source: "/shop", Mode: Structured, Type: "com.example.{{.Kind}}", Subject: "{{.Reference}}"}}, "ce_")
	if err != nil {
		t.Fatal(err)
	}
	for contentType, data := range map[string]string{"": `{"a":1}`, "application/octet-stream": "\xff\x00"} {
		d.ContentType, d.Payload = contentType, []byte(data)
		out, err := structured.Map(d)
		if err != nil {
			t.Fatal(err)
		}
		var e map[string]any
		if err := json.Unmarshal(out.Payload, &e); err != nil || !strings.HasPrefix(out.ContentType, "application/cloudevents+json") {
			t.Fatalf("%v: %s", err, out.Payload)
		}
		if e["id"] != "12" || e["type"] != "com.example.order.placed" || e["subject"] != "A-1" || e["specversion"] != "1.0" {
			t.Errorf("structured: %s", out.Payload)
		}
		if contentType == "" && e["data"].(map[string]any)["a"] != 1.0 || contentType != "" && e["data_base64"] != "/wA=" {
			t.Errorf("structured: %s", out.Payload)
		}
	}
	d.Kind = ""
	if _, err := binary.Map(d); !posthaste.IsPermanent(err) || !strings.Contains(err.Error(), "cloudevents.type") {
		t.Errorf("without a kind: %v", err)
	}
}

// Source and id together identify an event. The sender's own message id takes precedence,
// unless it equals the event's id.
func TestDedupeKeyOfEvents(t *testing.T) {
	for _, c := range []struct{ messageID, source, id, want string }{
		{"", "/shop", "1", "/shop 1"},
		{"", "/store", "1", "/store 1"},
		{"1", "/shop", "1", "/shop 1"},
		{"shop-1", "/shop", "1", "shop-1"},
		{"1", "", "1", "1"},
		{"", "", "1", ""},
		{"", "/a b", "c", "/a%20b c"},
		{"", "/a", "b c", "/a b c"},
		{"1", "", "", "1"},
	} {
		headers := map[string]string{"ce_specversion": "1.0", "ce_source": c.source, "ce_id": c.id, "ce_type": "placed"}
		binary := Incoming{MessageID: c.messageID, Headers: headers, Payload: []byte("x")}
		structured := Incoming{MessageID: c.messageID, ContentType: contentTypeEvent, Payload: fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":%q,"type":"placed"}`, c.id, c.source)}
		for _, in := range []Incoming{binary, structured} {
			if m, err := in.Message("ce_"); err != nil || m.DedupeKey != c.want {
				t.Errorf("%+v: the dedupe key is %q (%v), want %q", c, m.DedupeKey, err, c.want)
			}
		}
	}
	long := Incoming{ContentType: contentTypeEvent, Payload: fmt.Appendf(nil, `{"specversion":"1.0","id":"1","source":"/%s"}`, strings.Repeat("x", 300))}
	if m, err := long.Message(""); err != nil || !strings.HasPrefix(m.DedupeKey, "sha256:") {
		t.Errorf("a long source gives the dedupe key %q (%v)", m.DedupeKey, err)
	}
}

func FuzzTemplate(f *testing.F) {
	for _, text := range []string{"{{.Kind}}", `{{or (index .Headers "a") "b"}}`, "{{range .Headers}}{{.}}{{end}}", "{{.Headers.x}}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := Compile("f", text); err == nil {
			if _, err := c.Execute(sample()); err != nil && !posthaste.IsPermanent(err) {
				t.Error(err)
			}
		}
	})
}
