package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func TestSendStoresWhatWasAsked(t *testing.T) {
	t.Parallel()
	var sent []posthaste.Message
	a := newAPI(t, func(_ *Config, h *hooked) {
		h.send = func(_ context.Context, m ...posthaste.Message) ([]posthaste.Sent, error) {
			sent = m
			return make([]posthaste.Sent, len(m)), nil
		}
	})
	a.call("POST", "/v1/queues/orders/messages", `{"payload":{"n":12345678901234567890},"key":"k","kind":"made","headers":{"h":"v"},
		"reference":"r","terms":["x","y"],"delay":"5 minutes","wake":false}`).want(t, 201)
	m := sent[0]
	if string(m.Payload.(json.RawMessage)) != `{"n":12345678901234567890}` || m.Queue != "orders" || m.Key != "k" || m.Kind != "made" ||
		m.Headers["h"] != "v" || m.Reference != "r" || len(m.Terms) != 2 || m.Delay != 5*time.Minute || !m.NoWake {
		t.Fatalf("%+v", m)
	}
	a.call("POST", "/v1/queues/orders/messages/batch", `{"messages":[{"payload":null,"send_at":"2030-01-02T03:04:05+01:00"},{"payload":"AP8=","content_type":"image/png"},{"payload":"","content_type":"image/png"}]}`).want(t, 201)
	if !sent[0].SendAt.Equal(time.Date(2030, 1, 2, 2, 4, 5, 0, time.UTC)) || string(sent[0].Payload.(json.RawMessage)) != "null" || sent[0].NoWake {
		t.Fatalf("%+v", sent[0])
	}
	if !bytes.Equal(sent[1].Payload.([]byte), []byte{0, 255}) || sent[2].Payload.([]byte) == nil || sent[2].ContentType != "image/png" {
		t.Fatalf("%+v", sent[1:])
	}
}

// Payloads arrive exactly as sent: JSON equal as JSON, bytes byte for byte.
func TestDS9PayloadsOverHTTP(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.queue("orders")
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for _, c := range []struct{ contentType, payload string }{
		{"", `null`}, {"", `"x"`}, {"", `9223372036854775807`}, {"", `-0.1e-7`}, {"", `{"a":[1,{"b":"<&>\u00e9é\\"}],"":{}}`}, {"", `[]`},
		{"application/cloudevents+json", `{"a":1}`}, {"application/json; charset=utf-8", `true`},
		{"application/octet-stream", `""`}, {"text/plain", `"` + base64.StdEncoding.EncodeToString(all) + `"`},
	} {
		a.call("POST", "/v1/queues/orders/messages", fmt.Sprintf(`{"payload":%s,"content_type":%q}`, c.payload, c.contentType)).want(t, 201)
		var got []wire.Delivery
		a.call("POST", "/v1/queues/orders/receive", "").want(t, 200).items(t, &got)
		if len(got) != 1 || string(got[0].Payload) != c.payload && !sameJSON(t, got[0].Payload, c.payload) {
			t.Fatalf("sent %s, received %+v", c.payload, got)
		}
		want := "json"
		if !posthaste.IsJSON(c.contentType) {
			want = "base64"
		}
		if got[0].PayloadEncoding != want {
			t.Fatalf("payload_encoding %q for %q", got[0].PayloadEncoding, c.contentType)
		}
	}
}

func sameJSON(t *testing.T, a []byte, b string) bool {
	t.Helper()
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		t.Fatal("not JSON")
	}
	return fmt.Sprint(x) == fmt.Sprint(y)
}

// Bad input is told by field and status, and stores nothing.
func TestBadInputStoresNothing(t *testing.T) {
	t.Parallel()
	a := newAPI(t, func(_ *Config, h *hooked) {
		h.send = func(context.Context, ...posthaste.Message) ([]posthaste.Sent, error) {
			t.Error("something was sent")
			return nil, errors.New("no")
		}
	})
	const messages = "/v1/queues/orders/messages"
	for name, c := range map[string]struct {
		method, path, body string
		headers            []string
		status             int
		code               posthaste.Code
		field              string
	}{
		"unknown field":         {"POST", messages, `{"payload":1,"prioritee":1}`, nil, 400, posthaste.CodeInvalid, "prioritee"},
		"field of later":        {"POST", messages, `{"payload":1,"ordered":true}`, nil, 400, posthaste.CodeUnsupported, "ordered"},
		"priority":              {"POST", messages, `{"payload":1,"priority":4}`, nil, 400, posthaste.CodeInvalid, "priority"},
		"dedupe_key":            {"POST", messages + "/batch", `{"messages":[{"payload":1},{"dedupe_key":7}]}`, nil, 400, posthaste.CodeInvalid, "messages[1].dedupe_key"},
		"dedupe_window of zero": {"POST", messages, `{"payload":1,"dedupe_key":"x","dedupe_window":"0s"}`, nil, 400, posthaste.CodeInvalid, "dedupe_window"},
		"dedupe_window alone":   {"POST", messages, `{"payload":1,"dedupe_window":"1h"}`, nil, 400, posthaste.CodeInvalid, "dedupe_window"},
		"twice":                 {"POST", messages, `{"payload":1,"key":"a","key":"b"}`, nil, 400, posthaste.CodeInvalid, "key"},
		"wrong type":            {"POST", messages, `{"payload":1,"key":1}`, nil, 400, posthaste.CodeInvalid, "key"},
		"header of wrong type":  {"POST", messages, `{"payload":1,"headers":{"a":null}}`, nil, 400, posthaste.CodeInvalid, "headers.a"},
		"term of wrong type":    {"POST", messages, `{"payload":1,"terms":["a",1]}`, nil, 400, posthaste.CodeInvalid, "terms[1]"},
		"bad delay":             {"POST", messages, `{"payload":1,"delay":"1 month"}`, nil, 400, posthaste.CodeInvalid, "delay"},
		"negative delay":        {"POST", messages, `{"payload":1,"delay":"-1s"}`, nil, 400, posthaste.CodeInvalid, "delay"},
		"delay as number":       {"POST", messages, `{"payload":1,"delay":5}`, nil, 400, posthaste.CodeInvalid, "delay"},
		"bad time":              {"POST", messages, `{"payload":1,"send_at":"tomorrow"}`, nil, 400, posthaste.CodeInvalid, "send_at"},
		"delay and send_at":     {"POST", messages, `{"payload":1,"send_at":"2030-01-01T00:00:00Z","delay":"1s"}`, nil, 400, posthaste.CodeInvalid, "send_at"},
		"wake as text":          {"POST", messages, `{"payload":1,"wake":"no"}`, nil, 400, posthaste.CodeInvalid, "wake"},
		"no base64":             {"POST", messages, `{"payload":"!","content_type":"a/b"}`, nil, 400, posthaste.CodeInvalid, "payload"},
		"object for bytes":      {"POST", messages, `{"payload":{},"content_type":"a/b"}`, nil, 400, posthaste.CodeInvalid, "payload"},
		"half a surrogate":      {"POST", messages, `{"payload":1,"key":"\ud800"}`, nil, 400, posthaste.CodeInvalid, "key"},
		"no payload":            {"POST", messages, `{}`, nil, 400, posthaste.CodeInvalid, "payload"},
		"bytes of nothing":      {"POST", messages, `{"content_type":"a/b"}`, nil, 400, posthaste.CodeInvalid, "payload"},
		"no second payload":     {"POST", messages + "/batch", `{"messages":[{"payload":null},{"key":"k"}]}`, nil, 400, posthaste.CodeInvalid, "messages[1].payload"},
		"number out of range":   {"POST", messages, `{"payload":[1e400]}`, nil, 400, posthaste.CodeInvalid, ""},
		"receipt out of range":  {"POST", "/v1/deliveries/ack", `{"deliveries":[{"id":"7","receipt":[1e131000]}]}`, nil, 400, posthaste.CodeInvalid, ""},
		"payload of a schedule": {"PUT", "/v1/schedules/beat", `{"queue":"orders","spec":"@daily","payload":-1e999}`, nil, 400, posthaste.CodeInvalid, ""},
		"empty array":           {"POST", messages + "/batch", `{"messages":[]}`, nil, 400, posthaste.CodeInvalid, "messages"},
		"string":                {"POST", messages, `"x"`, nil, 400, posthaste.CodeInvalid, ""},
		"too deep":              {"POST", messages, `{"payload":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`, nil, 400, posthaste.CodeInvalid, ""},
		"parameter":             {"POST", messages + "?wait=1s", `{"payload":1}`, nil, 400, posthaste.CodeInvalid, "wait"},
		"form":                  {"POST", messages, `a=b`, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, posthaste.CodeInvalid, "Content-Type"},
		"latin-1":               {"POST", messages, `{"payload":1}`, []string{"Content-Type", "application/json; charset=latin1"}, 415, posthaste.CodeInvalid, "Content-Type"},
		"another compression":   {"POST", messages, `{"payload":1}`, []string{"Content-Encoding", "br"}, 415, posthaste.CodeInvalid, "Content-Encoding"},
		"not compressed":        {"POST", messages, `{"payload":1}`, []string{"Content-Encoding", "gzip"}, 400, posthaste.CodeInvalid, "Content-Encoding"},
		"no body":               {"POST", messages, ``, []string{"Content-Type", "application/json"}, 400, posthaste.CodeInvalid, ""},
		"key where none is":     {"GET", "/v1/queues", ``, []string{"Idempotency-Key", "x"}, 400, posthaste.CodeUnsupported, "Idempotency-Key"},
		"key with spaces":       {"POST", messages, `{"payload":1}`, []string{"Idempotency-Key", "a b"}, 400, posthaste.CodeInvalid, "Idempotency-Key"},
		"long key":              {"POST", messages, `{"payload":1}`, []string{"Idempotency-Key", strings.Repeat("k", 256)}, 413, posthaste.CodeTooLarge, "Idempotency-Key"},
		"empty key":             {"POST", messages, `{"payload":1}`, []string{"Idempotency-Key", ""}, 400, posthaste.CodeInvalid, "Idempotency-Key"},
		"two keys of a mail":    {"POST", "/v1/emails", `{"from":"a@b.c","to":["a@b.c"],"text":"x","idempotency_key":"x"}`, []string{"Idempotency-Key", "y"}, 400, posthaste.CodeInvalid, "idempotency_key"},
		"no recipient":          {"POST", "/v1/emails", `{"from":"a@example.com","text":"x"}`, nil, 400, posthaste.CodeInvalid, "to"},
		"header injection":      {"POST", "/v1/emails", `{"from":"a@example.com","to":["b@example.com"],"text":"x","subject":"a\r\nBcc: c@example.com"}`, nil, 400, posthaste.CodeInvalid, "subject"},
		"zero lease":            {"POST", "/v1/queues/orders/receive", `{"lease":"0s"}`, nil, 400, posthaste.CodeInvalid, "lease"},
		"long lease":            {"POST", "/v1/queues/orders/receive", `{"lease":"13h"}`, nil, 400, posthaste.CodeInvalid, "lease"},
		"zero max":              {"POST", "/v1/queues/orders/receive", `{"max":0}`, nil, 400, posthaste.CodeInvalid, "max"},
		"long wait":             {"POST", "/v1/queues/orders/receive", `{"wait":"6m"}`, nil, 400, posthaste.CodeInvalid, "wait"},
		"max twice":             {"POST", "/v1/queues/orders/receive", `{"max":1,"max":2}`, nil, 400, posthaste.CodeInvalid, "max"},
		"empty subscription":    {"POST", "/v1/queues/orders/receive", `{"subscription":""}`, nil, 400, posthaste.CodeInvalid, "subscription"},
		"query for receive":     {"POST", "/v1/queues/orders/receive?max=1", ``, nil, 400, posthaste.CodeInvalid, "max"},
		"unknown queue":         {"POST", "/v1/queues/orders/receive", ``, nil, 404, posthaste.CodeNotFound, "queue"},
		"queue's unknown":       {"PUT", "/v1/queues/orders", `{"size":1}`, nil, 400, posthaste.CodeInvalid, "size"},
		"a limit of zero":       {"PUT", "/v1/queues/orders", `{"concurrency":0}`, nil, 400, posthaste.CodeInvalid, "concurrency"},
		"a rate of nothing":     {"PATCH", "/v1/queues/orders", `{"rate_limit":{"per":"1s"}}`, nil, 400, posthaste.CodeInvalid, "rate_limit.limit"},
		"queue's attempts":      {"PUT", "/v1/queues/orders", `{"max_attempts":0}`, nil, 400, posthaste.CodeInvalid, "max_attempts"},
		"queue's payload":       {"PUT", "/v1/queues/orders", `{"max_payload":33554433}`, nil, 400, posthaste.CodeInvalid, "max_payload"},
		"queue's timeout":       {"PUT", "/v1/queues/orders", `{"timeout":"0s"}`, nil, 400, posthaste.CodeInvalid, "timeout"},
		"queue's backoff":       {"PUT", "/v1/queues/orders", `{"backoff":{"bass":"1s"}}`, nil, 400, posthaste.CodeInvalid, "backoff.bass"},
		"queue's name":          {"PUT", "/v1/queues/Orders", ``, nil, 400, posthaste.CodeInvalid, "queue"},
		"message id":            {"GET", "/v1/messages/x", ``, nil, 400, posthaste.CodeInvalid, "id"},
		"no such message":       {"GET", "/v1/messages/77", ``, nil, 404, posthaste.CodeNotFound, "id"},
		"state":                 {"GET", "/v1/messages?state=gone", ``, nil, 400, posthaste.CodeInvalid, "state"},
		"status":                {"GET", "/v1/emails?status=gone", ``, nil, 400, posthaste.CodeInvalid, "status"},
		"limit":                 {"GET", "/v1/messages?limit=1001", ``, nil, 400, posthaste.CodeInvalid, "limit"},
		"before":                {"GET", "/v1/dead-letters?before=-1", ``, nil, 400, posthaste.CodeInvalid, "before"},
		"query":                 {"GET", "/v1/messages?queue=%zz", ``, nil, 400, posthaste.CodeInvalid, ""},
		"no deliveries":         {"POST", "/v1/deliveries/ack", `{}`, nil, 400, posthaste.CodeInvalid, "deliveries"},
		"delivery id":           {"POST", "/v1/deliveries/ack", `{"deliveries":[{"id":7}]}`, nil, 400, posthaste.CodeInvalid, "deliveries[0].id"},
		"delivery twice":        {"POST", "/v1/deliveries/ack", `{"deliveries":[{"id":"7"},{"id":"7"}]}`, nil, 400, posthaste.CodeInvalid, "deliveries[1].id"},
		"error of blanks":       {"POST", "/v1/deliveries/fail", `{"deliveries":[{"id":"7","error":" \n"}]}`, nil, 400, posthaste.CodeInvalid, "deliveries[0].error"},
		"time of nothing":       {"POST", messages, `{"payload":1,"send_at":""}`, nil, 400, posthaste.CodeInvalid, "send_at"},
		"time of a mail":        {"POST", "/v1/emails", `{"from":"a@example.com","to":["b@example.com"],"text":"x","send_at":""}`, nil, 400, posthaste.CodeInvalid, "send_at"},
		"moved to nothing":      {"POST", "/v1/messages/7/reschedule", `{"send_at":""}`, nil, 400, posthaste.CodeInvalid, "send_at"},
		"error missing":         {"POST", "/v1/deliveries/fail", `{"deliveries":[{"id":"7"}]}`, nil, 400, posthaste.CodeInvalid, "deliveries[0].error"},
		"retry of permanent":    {"POST", "/v1/deliveries/fail", `{"deliveries":[{"id":"7","error":"x","permanent":true,"retry_after":"1s"}]}`, nil, 400, posthaste.CodeInvalid, "deliveries[0].retry_after"},
		"delay of no length":    {"POST", messages, `{"payload":1,"delay":""}`, nil, 400, posthaste.CodeInvalid, "delay"},
		"retry of no length":    {"POST", "/v1/deliveries/fail", `{"deliveries":[{"id":"7","error":"x","retry_after":""}]}`, nil, 400, posthaste.CodeInvalid, "deliveries[0].retry_after"},
		"lease missing":         {"POST", "/v1/deliveries/extend", `{"deliveries":[{"id":"7"}]}`, nil, 400, posthaste.CodeInvalid, "deliveries[0].lease"},
		"lease of zero":         {"POST", "/v1/deliveries/extend", `{"deliveries":[{"id":"7","lease":"0s"}]}`, nil, 400, posthaste.CodeInvalid, "deliveries[0].lease"},
		"after of release":      {"POST", "/v1/deliveries/release", `{"deliveries":[{"id":"7","after":"-1s"}]}`, nil, 400, posthaste.CodeInvalid, "deliveries[0].after"},
		"error of release":      {"POST", "/v1/deliveries/release", `{"deliveries":[{"id":"7","error":"x"}]}`, nil, 400, posthaste.CodeInvalid, "deliveries[0].error"},
		"ids missing":           {"POST", "/v1/dead-letters/replay", `{}`, nil, 400, posthaste.CodeInvalid, "ids"},
		"ids and filter":        {"POST", "/v1/dead-letters/replay", `{"ids":["1"],"filter":{}}`, nil, 400, posthaste.CodeInvalid, "ids"},
		"filter of what":        {"POST", "/v1/dead-letters/discard", `{"filter":{"color":"red"}}`, nil, 400, posthaste.CodeInvalid, "filter.color"},
		"filter of nothing":     {"POST", "/v1/dead-letters/discard", `{"filter":{}}`, nil, 400, posthaste.CodeInvalid, "filter"},
		"filter of no time":     {"POST", "/v1/dead-letters/discard", `{"filter":{"died_from":"0001-01-01T00:00:00Z"}}`, nil, 400, posthaste.CodeInvalid, "filter"},
		"filter's empty queue":  {"POST", "/v1/dead-letters/discard", `{"filter":{"queue":""}}`, nil, 400, posthaste.CodeInvalid, "filter.queue"},
		"filter's null":         {"POST", "/v1/dead-letters/replay", `{"filter":{"queue":null,"key":"k"}}`, nil, 400, posthaste.CodeInvalid, "filter.queue"},
		"filter and all":        {"POST", "/v1/dead-letters/replay", `{"filter":{"queue":"orders"},"all":true}`, nil, 400, posthaste.CodeInvalid, "all"},
		"ids and all":           {"POST", "/v1/dead-letters/replay", `{"ids":["1"],"all":true}`, nil, 400, posthaste.CodeInvalid, "ids"},
		"not all":               {"POST", "/v1/dead-letters/replay", `{"all":false}`, nil, 400, posthaste.CodeInvalid, "ids"},
		"filter's time":         {"POST", "/v1/dead-letters/discard", `{"filter":{"died_from":"soon"}}`, nil, 400, posthaste.CodeInvalid, "filter.died_from"},
		"died_before":           {"GET", "/v1/dead-letters?died_before=soon", ``, nil, 400, posthaste.CodeInvalid, "died_before"},
		"before of nothing":     {"POST", "/v1/dead-letters/replay", `{"all":true,"before":""}`, nil, 400, posthaste.CodeInvalid, "before"},
		"erase after nothing":   {"POST", "/v1/erase", `{"term":"t","before":""}`, nil, 400, posthaste.CodeInvalid, "before"},
		"blank recipient":       {"GET", "/v1/emails?recipient=%20", ``, nil, 400, posthaste.CodeInvalid, "recipient"},
		"erase nothing":         {"POST", "/v1/erase", `{}`, nil, 400, posthaste.CodeInvalid, "term"},
		"erase from where":      {"POST", "/v1/erase", `{"term":"t","before":"x"}`, nil, 400, posthaste.CodeInvalid, "before"},
		"retention of nothing":  {"PUT", "/v1/queues/kept", `{"retention":"0s"}`, nil, 400, posthaste.CodeInvalid, "retention"},
		"action's message":      {"GET", "/v1/actions?message=x", ``, nil, 400, posthaste.CodeInvalid, "message"},
		"ids as numbers":        {"POST", "/v1/dead-letters/discard", `{"ids":[1]}`, nil, 400, posthaste.CodeInvalid, "ids[0]"},
		"no dead letter":        {"POST", "/v1/dead-letters/replay", `{"ids":["5"]}`, nil, 404, posthaste.CodeNotFound, "ids"},
		"nowhere":               {"GET", "/v2", ``, nil, 404, posthaste.CodeNotFound, ""},
		"method":                {"PATCH", "/v1/queues", ``, nil, 405, posthaste.CodeInvalid, "method"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a.call(c.method, c.path, c.body, c.headers...).wantProblem(t, c.status, c.code, c.field)
		})
	}
}

// An option that a store does not support, here the one in memory, is rejected by its name.
func TestWhatAStoreDoesNotKnow(t *testing.T) {
	t.Parallel()
	newAPI(t).call("PUT", "/v1/queues/orders", `{"concurrency":5}`).wantProblem(t, 400, posthaste.CodeUnsupported, "limits")
}

func TestBrokenJSONTellsWhere(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for body, want := range map[string]string{
		`{"key":}`:           "byte 8",
		`{"key":"a"} x`:      "byte 12",
		`{"key":"a"`:         "byte 10",
		"{\"key\":\"\xff\"}": "byte 8",
		`{}{}`:               "byte 2",
	} {
		p := a.call("POST", "/v1/queues/orders/messages", body).wantProblem(t, 400, posthaste.CodeInvalid, "")
		if !strings.Contains(p.Detail, want) {
			t.Errorf("%q: %s", body, p.Detail)
		}
	}
}

func TestTooLargeBodies(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.queue("orders")
	a.call("POST", "/v1/queues/orders/messages", `{"payload":"`+strings.Repeat("x", 1<<20)+`"}`).want(t, 413)
	a.call("POST", "/v1/queues/orders/messages", `{"payload":"`+strings.Repeat("x", maxBody)+`"}`).wantProblem(t, 413, posthaste.CodeTooLarge, "")
	for _, word := range []string{"key", "kind", "reference", "content_type"} {
		body := fmt.Sprintf(`{"payload":"AAAA",%q:%q}`, word, strings.Repeat("x", posthaste.MaxWordBytes+1))
		a.call("POST", "/v1/queues/orders/messages", body).wantProblem(t, 413, posthaste.CodeTooLarge, word)
	}
	var left []wire.Message
	a.call("GET", "/v1/messages", "").want(t, 200).items(t, &left)
	if len(left) != 0 {
		t.Fatalf("%d were stored", len(left))
	}
}

// Every code has its status, and no caller sees internal errors.
func TestProblemOfEveryCode(t *testing.T) {
	t.Parallel()
	var fail error
	a := newAPI(t, func(_ *Config, h *hooked) {
		h.send = func(context.Context, ...posthaste.Message) ([]posthaste.Sent, error) { return nil, fail }
	})
	for _, c := range []struct {
		err    error
		status int
		code   posthaste.Code
	}{
		{&posthaste.Error{Code: posthaste.CodeInvalid}, 400, posthaste.CodeInvalid},
		{&posthaste.Error{Code: posthaste.CodeNotFound}, 404, posthaste.CodeNotFound},
		{&posthaste.Error{Code: posthaste.CodeConflict}, 409, posthaste.CodeConflict},
		{&posthaste.Error{Code: posthaste.CodeRefused}, 409, posthaste.CodeRefused},
		{&posthaste.Error{Code: posthaste.CodeTooLarge}, 413, posthaste.CodeTooLarge},
		{&posthaste.Error{Code: posthaste.CodeUnsupported}, 501, posthaste.CodeUnsupported},
		{&posthaste.Error{Code: posthaste.CodeUnsupported, Field: "f"}, 400, posthaste.CodeUnsupported},
		{&posthaste.Error{Code: posthaste.CodeUnavailable}, 503, posthaste.CodeUnavailable},
		{&posthaste.Error{Code: posthaste.CodeReadOnly}, 503, posthaste.CodeReadOnly},
		{&posthaste.Error{Code: posthaste.CodeSchemaOld}, 503, posthaste.CodeSchemaOld},
		{&posthaste.Error{Code: posthaste.CodeSchemaNew}, 503, posthaste.CodeSchemaNew},
		{&posthaste.Error{Code: posthaste.CodeDenied}, 403, posthaste.CodeDenied},
		{&posthaste.Error{Code: posthaste.CodeOutcomeUnknown}, 503, posthaste.CodeOutcomeUnknown},
		{fmt.Errorf("wrapped: %w", &posthaste.Error{Code: posthaste.CodeUnavailable}), 503, posthaste.CodeUnavailable},
		{context.DeadlineExceeded, 503, posthaste.CodeOutcomeUnknown},
		{errors.New("password=hunter2"), 500, codeInternal},
	} {
		var e *posthaste.Error
		if errors.As(c.err, &e) {
			e.Message = "what happened"
		}
		fail = c.err
		got := a.call("POST", "/v1/queues/orders/messages", `{"payload":1}`).want(t, c.status)
		p := got.problem(t)
		if p.Code != c.code || bytes.Contains(got.body, []byte("hunter2")) {
			t.Errorf("%v: %s", c.err, got.body)
		}
		if (got.header.Get("Retry-After") != "") != (c.status == 503) {
			t.Errorf("%v: Retry-After %q", c.err, got.header.Get("Retry-After"))
		}
		if c.code == posthaste.CodeOutcomeUnknown && !strings.Contains(p.Detail, "may or may not have been stored") {
			t.Errorf("%v: %s", c.err, p.Detail)
		}
		if p.RequestID == "" || p.RequestID != got.header.Get("X-Request-Id") {
			t.Errorf("request id %q, header %q", p.RequestID, got.header.Get("X-Request-Id"))
		}
	}
	if !strings.Contains(a.log.String(), "hunter2") {
		t.Error("the log does not tell what happened")
	}
}

func TestPanicIsAProblemAndLogged(t *testing.T) {
	t.Parallel()
	a := newAPI(t, func(_ *Config, h *hooked) {
		h.send = func(context.Context, ...posthaste.Message) ([]posthaste.Sent, error) { panic("oh no") }
	})
	p := a.call("POST", "/v1/queues/orders/messages", `{"payload":1}`, "X-Request-Id", "mine-1").wantProblem(t, 500, codeInternal, "")
	if p.RequestID != "mine-1" || strings.Contains(p.Detail, "oh no") {
		t.Errorf("%+v", p)
	}
	if log := a.log.String(); !strings.Contains(log, "oh no") || !strings.Contains(log, "mine-1") || !strings.Contains(log, "messages_test.go") {
		t.Errorf("log: %s", log)
	}
	a.call("GET", "/healthz", "").want(t, 200)
}

func TestPutQueueTwice(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.call("PUT", "/v1/queues/q", `{"timeout":"90s","backoff":{"base":"100ms"}}`).want(t, 201)
	var q wire.Queue
	a.call("PUT", "/v1/queues/q", `{"timeout":"1m30s","max_attempts":20}`).want(t, 200).into(t, &q)
	if q.Options["timeout"] != "1m30s" || q.Options["backoff"].(map[string]any)["base"] != "100ms" || q.Options["max_payload"] != float64(1<<20) {
		t.Errorf("%+v", q)
	}
	a.call("PUT", "/v1/queues/q", `{"timeout":"1m"}`).wantProblem(t, 409, posthaste.CodeConflict, "timeout")
	a.call("DELETE", "/v1/queues/q", ``).want(t, 204)
	a.call("GET", "/v1/queues/q", ``).wantProblem(t, 404, posthaste.CodeNotFound, "queue")
}

func TestEmails(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	// So that sent messages are kept, in every store.
	if err := a.engine.CreateQueue(t.Context(), "emails", posthaste.QueueOptions{Retention: time.Hour, RetainPayload: true}); err != nil {
		t.Fatal(err)
	}
	a.queue("orders")
	var ids []posthaste.MessageID
	for range 5 {
		var one wire.Sent
		a.call("POST", "/v1/emails", `{"from":"a@example.com","to":["Grace <Grace@Example.com>"],"subject":"Hej","text":"x","reference":"r"}`).want(t, 201).into(t, &one)
		ids = append(ids, one.ID)
	}
	var got []wire.Delivery
	a.call("POST", "/v1/queues/emails/receive", `{"max":4}`).want(t, 200).items(t, &got)
	receipt := `{"message_id":"<1@example.com>","server":"mx:25","recipients":{"grace@example.com":{"status":"%s","code":250,"text":"ok","attempt":1,"at":"2030-01-01T00:00:00Z"}}}`
	a.call("POST", "/v1/deliveries/ack", `{"deliveries":[{"id":"`+got[0].ID.String()+`","receipt":`+fmt.Sprintf(receipt, "accepted")+`}]}`).want(t, 200)
	a.call("POST", "/v1/deliveries/fail", `{"deliveries":[{"id":"`+got[1].ID.String()+`","error":"550","permanent":true,"receipt":`+fmt.Sprintf(receipt, "refused")+`}]}`).want(t, 200)
	a.call("POST", "/v1/deliveries/fail", `{"deliveries":[{"id":"`+got[2].ID.String()+`","error":"450","retry_after":"1h"}]}`).want(t, 200)
	for i, want := range []string{"sent", "error", "scheduled", "claimed", "scheduled"} {
		var e wire.Email
		a.call("GET", "/v1/emails/"+ids[i].String(), "").want(t, 200).into(t, &e)
		if string(e.Status) != want || e.Subject != "Hej" || e.From != "a@example.com" || e.Reference != "r" || len(e.To) != 1 {
			t.Errorf("%d: %+v, want %s", i, e, want)
		}
		if i < 2 && (e.Answers["grace@example.com"].Code != 250 || e.MessageID != "<1@example.com>" || len(e.Attempts) != 1) {
			t.Errorf("%d: answers %+v", i, e)
		}
	}
	for query, want := range map[string][]posthaste.MessageID{
		"reference=r":                  {ids[4], ids[3], ids[2], ids[1], ids[0]},
		"recipient=grace@example.com":  {ids[4], ids[3], ids[2], ids[1], ids[0]},
		"recipient=other@example.com":  nil,
		"status=sent":                  {ids[0]},
		"status=scheduled":             {ids[4], ids[2]},
		"status=scheduled&limit=1":     {ids[4]},
		"status=error&reference=other": nil,
		"limit=2&cursor=" + wire.NewCursor("emails", ids[3].String()): {ids[2], ids[1]},
	} {
		var list []wire.Email
		a.call("GET", "/v1/emails?"+query, "").want(t, 200).items(t, &list)
		var found []posthaste.MessageID
		for _, e := range list {
			found = append(found, e.ID)
		}
		if fmt.Sprint(found) != fmt.Sprint(want) {
			t.Errorf("%s: %v instead of %v", query, found, want)
		}
	}
}

// An e-mail is cancelled by its id, and the id of another message leads to the messages.
func TestEmailsAreCancelled(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.queue("orders")
	a.queue("emails")
	var mail wire.Sent
	a.call("POST", "/v1/emails", someEmail).want(t, 201).into(t, &mail)
	var other wire.Sent
	a.call("POST", "/v1/queues/orders/messages", `{"payload":1}`).want(t, 201).into(t, &other)
	for _, method := range []string{"GET", "DELETE"} {
		p := a.call(method, "/v1/emails/"+other.ID.String(), "").wantProblem(t, 404, posthaste.CodeNotFound, "id")
		if want := method + " /v1/messages/" + other.ID.String(); !strings.Contains(p.Hint, want) {
			t.Errorf("the hint is %q, want %q in it", p.Hint, want)
		}
	}
	a.call("DELETE", "/v1/emails/"+mail.ID.String(), "").want(t, 200)
	var e wire.Email
	a.call("GET", "/v1/emails/"+mail.ID.String(), "").want(t, 200).into(t, &e)
	if e.Status != email.StatusCancelled {
		t.Errorf("a cancelled e-mail reads %s", e.Status)
	}
}

func TestFaultsOfAMailAreAllTold(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	p := a.call("POST", "/v1/emails", `{"from":"sender","to":["@"],"text":"x"}`).want(t, http.StatusBadRequest).problem(t)
	if len(p.Faults) != 2 || p.Faults[0].Field != "from" || p.Faults[1].Field != "to[0]" {
		t.Errorf("%+v", p.Faults)
	}
}

// A duplicate is told apart from a new message by status and body, alone and among others.
func TestDuplicateIsTold(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.call("PUT", "/v1/queues/orders", `{}`).want(t, 201)
	const path = "/v1/queues/orders/messages"
	var first, second wire.Sent
	a.call("POST", path, `{"payload":1,"dedupe_key":"k"}`).want(t, 201).into(t, &first)
	a.call("POST", path, `{"payload":2,"dedupe_key":"k"}`).want(t, 200).into(t, &second)
	if first.Duplicate || second != (wire.Sent{ID: first.ID, Duplicate: true}) {
		t.Errorf("the first is %+v, the second %+v", first, second)
	}
	var both wire.SentMany
	a.call("POST", path+"/batch", `{"messages":[{"payload":3,"dedupe_key":"k"},{"payload":4}]}`).want(t, 201).into(t, &both)
	if len(both.Sent) != 2 || !both.Sent[0].Duplicate || both.Sent[1].Duplicate || both.IDs[0] != first.ID {
		t.Errorf("of a duplicate and a new message: %+v", both)
	}
	a.call("POST", path+"/batch", `{"messages":[{"payload":3,"dedupe_key":"k"},{"payload":3,"dedupe_key":"k"}]}`).want(t, 200)
}
