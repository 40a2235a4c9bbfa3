package enginetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var sending = []test{
	{name: "SendClaimSettle", run: sendClaimSettle},
	{name: "DS3_FirstInFirstOut", run: firstInFirstOut},
	{name: "DS9_AnythingArrivesAsSent", run: arrivesAsSent},
	{name: "DS9_PayloadsUpToTheLimit", run: upToTheLimit},
	{name: "DelayAndSendAt", run: delayed, needs: features{Exact: true}},
	{name: "BadMessagesStoreNothing", run: badMessages},
	{name: "ErrorWords", run: errorWords},
	{name: "UnknownQueue", run: unknownQueue},
}

func sendClaimSettle(s *suite) {
	s.create(posthaste.QueueOptions{})
	s.must(s.engine.Ready(s.ctx))
	if ids, err := posthaste.IDs(s.engine.Send(s.ctx)); err != nil || len(ids) != 0 {
		s.Errorf("sending nothing: ids %v, error %v", ids, err)
	}
	ids := s.send(3)
	if !slices.IsSorted(ids) || ids[0] <= 0 {
		s.Errorf("ids %v, want positive and ascending", ids)
	}
	s.wantState(ids[0], posthaste.StateReady)
	w := s.register(time.Minute)
	got := s.claimed(w, 3)
	if !slices.Equal(messageIDs(got), ids) {
		s.Errorf("messages %v, want %v", messageIDs(got), ids)
	}
	for _, d := range got {
		if d.Attempt != 1 || d.Queue != s.queue || d.Subscription != posthaste.DefaultSubscription || d.Story != nil || d.Alone || d.Timeout != 30*time.Second || d.CreatedAt.IsZero() {
			s.Errorf("first delivery is reported as %+v", d)
		}
	}
	s.wantState(ids[0], posthaste.StateRunning)
	s.none(w)
	for _, r := range s.settle(done, got...) {
		if r.Outcome != posthaste.OutcomeDone {
			s.Errorf("settled as %+v, want done", r)
		}
	}
	s.none(w)
	s.wantState(ids[0], posthaste.StateDone)
	s.must(s.engine.Unregister(s.ctx, w))
}

func firstInFirstOut(s *suite) {
	s.create(posthaste.QueueOptions{})
	s.send(3)
	w := s.register(time.Minute)
	first, second := s.claim(w, 2), s.claim(w, 2)
	if got := fmt.Sprint(payloads(first), payloads(second)); got != "[0 1] [2]" {
		s.Errorf("handed out %s, want [0 1] [2]", got)
	}
	s.send(4)
	got := s.receive(3, time.Minute)
	if text := fmt.Sprint(payloads(got)); text != "[0 1 2]" {
		s.Errorf("received %s, want [0 1 2]", text)
	}
}

func arrivesAsSent(s *suite) {
	s.create(posthaste.QueueOptions{MaxPayload: 1 << 20})
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	word := strings.Repeat("ü", 127) + "x" // 255 bytes
	sent := []posthaste.Message{
		{Payload: nil},
		{Payload: json.RawMessage(`{"b":[1,2.50,-0,1e3],"a":{"":null},"t":true,"s":"\"\\/ü😀\u2028"}`)},
		{Payload: json.RawMessage(`9223372036854775807`)},
		{Payload: json.RawMessage(`[-9223372036854775808, 0.1]`)},
		{Payload: json.RawMessage(`""`)},
		{Payload: json.RawMessage(`[1.7976931348623157e308, -5e-324, 0e10, 0.0, ` + strings.Repeat("9", 308) + `]`)},
		{Payload: json.RawMessage(`["\\u0000", "\\\\ud800", "\ud83d\ude00", "1e400"]`)},
		{Payload: json.RawMessage(strings.Repeat("[", 1000) + strings.Repeat("]", 1000))},
		{Payload: []byte("{}"), ContentType: "Application/JSON; charset=utf-8"},
		{Payload: map[string]any{"n": 1, "nested": []string{"x"}}},
		{Payload: []byte{}},
		{Payload: []byte{0}},
		{Payload: every},
		{Payload: []byte("<a/>"), ContentType: "application/xml"},
		{Payload: 1, Key: word, Kind: word, Reference: word, Terms: []string{word, "b"},
			Headers: map[string]string{"a": "", "traceparent": "00-x", "ü": "line\nbreak \t\"'\\"}},
		{Payload: 1, Headers: map[string]string{"big": strings.Repeat("x", posthaste.MaxHeaderBytes-3)}},
	}
	for i := range sent {
		sent[i].Queue, sent[i].Priority = s.queue, i%3
	}
	ids, err := posthaste.IDs(s.engine.Send(s.ctx, sent...))
	s.must(err)
	got := s.claimed(s.register(time.Minute), len(sent))
	slices.SortFunc(got, func(a, b posthaste.RawDelivery) int { return int(a.MessageID - b.MessageID) })
	for i, d := range got {
		m := sent[i]
		body, contentType, err := m.Body()
		s.must(err)
		if d.MessageID != ids[i] || d.ContentType != contentType || d.Key != m.Key || d.Kind != m.Kind || d.Reference != m.Reference {
			s.Errorf("message %d arrived as %+v", i, d)
		}
		if !maps.Equal(d.Headers, m.Headers) && len(d.Headers)+len(m.Headers) > 0 {
			s.Errorf("message %d: headers %q, want %q", i, d.Headers, m.Headers)
		}
		if !samePayload(contentType, d.Payload, body) {
			s.Errorf("message %d: payload %q, want %q", i, d.Payload, body)
		}
		info, err := s.engine.Message(s.ctx, ids[i])
		s.must(err)
		if !samePayload(contentType, info.Payload, body) || !slices.Equal(info.Terms, m.Terms) || info.ContentType != contentType || info.Reference != m.Reference {
			s.Errorf("message %d is reported as %+v", i, info)
		}
	}
}

// samePayload compares JSON by value, numbers included, and other content byte by byte.
func samePayload(contentType string, a, b []byte) bool {
	if contentType != posthaste.ContentTypeJSON {
		return bytes.Equal(a, b)
	}
	var x, y any
	for _, p := range []struct {
		text []byte
		into *any
	}{{a, &x}, {b, &y}} {
		decoder := json.NewDecoder(bytes.NewReader(p.text))
		decoder.UseNumber() // keeps 64-bit integers exact
		if decoder.Decode(p.into) != nil {
			return false
		}
	}
	return reflect.DeepEqual(plain(x), plain(y))
}

// plain converts equal numbers to the same form.
func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		if f == float64(int64(f)) {
			return int64(f)
		}
		return f
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = plain(v[k])
		}
	}
	return v
}

func upToTheLimit(s *suite) {
	const limit = 100_000
	s.create(posthaste.QueueOptions{MaxPayload: limit})
	w := s.register(time.Minute)
	for _, n := range []int{1, limit - 1, limit} {
		body := bytes.Repeat([]byte{0xfe}, n)
		_, err := s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Payload: body})
		s.must(err)
		if got := s.claimed(w, 1); !bytes.Equal(got[0].Payload, body) {
			s.Errorf("%d bytes did not arrive as sent", n)
		}
	}
	_, err := s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Payload: make([]byte, limit+1)})
	s.wantCode("one byte too many", err, posthaste.CodeTooLarge)
	s.none(w)
}

func delayed(s *suite) {
	s.create(posthaste.QueueOptions{})
	w := s.register(time.Minute)
	const delay = 300 * time.Millisecond
	before := time.Now()
	ids, err := posthaste.IDs(s.engine.Send(s.ctx,
		posthaste.Message{Queue: s.queue, Payload: "later", Delay: delay},
		posthaste.Message{Queue: s.queue, Payload: "tomorrow", SendAt: time.Now().Add(24 * time.Hour)},
		posthaste.Message{Queue: s.queue, Payload: "past", SendAt: time.Now().Add(-time.Hour)},
		posthaste.Message{Queue: s.queue, Payload: "now"}))
	s.must(err)
	if at := s.state(ids[1]); at.State != posthaste.StateScheduled || time.Until(at.DueAt) < 23*time.Hour {
		s.Errorf("the message for tomorrow is %+v", at)
	}
	var got []posthaste.RawDelivery
	s.until("those come that are or fall due", func() bool {
		reply, err := s.engine.Claim(s.ctx, s.request(w, 10))
		s.must(err)
		if len(reply.Deliveries) == 0 && (reply.NextDue < 0 || reply.NextDue > 24*time.Hour) {
			s.Fatalf("next due in %s while at least one waits", reply.NextDue)
		}
		for _, d := range reply.Deliveries {
			// A store may record the two times one after the other.
			if since, told := time.Since(before), d.DueAt.Sub(d.CreatedAt); d.MessageID == ids[0] && (since < delay || told < delay-10*time.Millisecond || told > delay+10*time.Second) {
				s.Errorf("the delayed message came after %s, told to be due at %s, sent at %s", since, d.DueAt, d.CreatedAt)
			}
			if d.MessageID != ids[0] && !d.DueAt.IsZero() {
				s.Errorf("message %d, which was not held back, is reported as due at %s", d.MessageID, d.DueAt)
			}
		}
		got = append(got, reply.Deliveries...)
		return len(got) >= 3
	})
	if want := []posthaste.MessageID{ids[0], ids[2], ids[3]}; !slices.Equal(messageIDs(got), want) {
		s.Errorf("handed out %v, want %v", messageIDs(got), want)
	}
}

func badMessages(s *suite) {
	s.create(posthaste.QueueOptions{})
	w := s.register(time.Minute)
	good := posthaste.Message{Queue: s.queue, Payload: 1}
	long := strings.Repeat("x", posthaste.MaxWordBytes+1)
	tooLong, invalid := []posthaste.Code{posthaste.CodeTooLarge}, []posthaste.Code{posthaste.CodeInvalid}
	for _, c := range []struct {
		name, field string
		m           posthaste.Message
		codes       []posthaste.Code
	}{
		{"no queue", "queue", posthaste.Message{}, []posthaste.Code{posthaste.CodeInvalid, posthaste.CodeNotFound}},
		{"unknown queue", "queue", posthaste.Message{Queue: "unknown"}, []posthaste.Code{posthaste.CodeNotFound}},
		{"long key", "key", posthaste.Message{Queue: s.queue, Key: long}, tooLong},
		{"long kind", "kind", posthaste.Message{Queue: s.queue, Kind: long}, tooLong},
		{"long reference", "reference", posthaste.Message{Queue: s.queue, Reference: long}, tooLong},
		{"long term", "terms", posthaste.Message{Queue: s.queue, Terms: []string{long}}, tooLong},
		{"large headers", "headers", posthaste.Message{Queue: s.queue, Headers: map[string]string{"h": strings.Repeat("x", posthaste.MaxHeaderBytes)}}, tooLong},
		{"two times", "", posthaste.Message{Queue: s.queue, Delay: time.Second, SendAt: time.Now()}, []posthaste.Code{posthaste.CodeInvalid}},
		{"negative delay", "delay", posthaste.Message{Queue: s.queue, Delay: -time.Second}, []posthaste.Code{posthaste.CodeInvalid}},
		{"no JSON", "payload", posthaste.Message{Queue: s.queue, Payload: json.RawMessage(`{"a":`)}, []posthaste.Code{posthaste.CodeInvalid}},
		{"JSON with NUL", "payload", posthaste.Message{Queue: s.queue, Payload: json.RawMessage(`"\u0000"`)}, []posthaste.Code{posthaste.CodeInvalid}},
		{"JSON with invalid UTF-8", "payload", posthaste.Message{Queue: s.queue, Payload: json.RawMessage("\"\xff\"")}, []posthaste.Code{posthaste.CodeInvalid}},
		{"invalid JSON whose type has parameters", "payload", posthaste.Message{Queue: s.queue, Payload: []byte("{"), ContentType: "Application/JSON; charset=utf-8"}, invalid},
		{"invalid JSON of another JSON type", "payload", posthaste.Message{Queue: s.queue, Payload: []byte("{"), ContentType: "application/problem+json"}, invalid},
		{"half a surrogate pair", "payload", posthaste.Message{Queue: s.queue, Payload: json.RawMessage(`["\\", "\ud800"]`)}, invalid},
		{"a number that is too large", "payload", posthaste.Message{Queue: s.queue, Payload: json.RawMessage(`[1, -1e400]`)}, invalid},
		{"a number of many digits", "payload", posthaste.Message{Queue: s.queue, Payload: json.RawMessage(strings.Repeat("9", 310))}, invalid},
		{"a number of no size", "payload", posthaste.Message{Queue: s.queue, Payload: json.RawMessage(`{"a": 1e-400}`)}, invalid},
		{"a number made so", "payload", posthaste.Message{Queue: s.queue, Payload: json.Number("1e309")}, invalid},
		{"JSON that is too deep", "payload", posthaste.Message{Queue: s.queue, Payload: json.RawMessage(strings.Repeat("[", 1001) + strings.Repeat("]", 1001))}, invalid},
		{"not encodable", "payload", posthaste.Message{Queue: s.queue, Payload: func() {}}, []posthaste.Code{posthaste.CodeInvalid}},
	} {
		for _, batch := range [][]posthaste.Message{{c.m}, {good, c.m, good}} {
			ids, err := posthaste.IDs(s.engine.Send(s.ctx, batch...))
			if !slices.Contains(c.codes, posthaste.CodeOf(err)) || len(ids) != 0 {
				s.Errorf("%s: ids %v, error %v with code %q, want %v", c.name, ids, err, posthaste.CodeOf(err), c.codes)
				continue
			}
			if field := fieldOf(err); !strings.Contains(field, c.field) {
				s.Errorf("%s: the error names field %q, want %q: %v", c.name, field, c.field, err)
			}
		}
	}
	s.none(w)
}

func unknownQueue(s *suite) {
	s.create(posthaste.QueueOptions{})
	w := s.register(time.Minute)
	s.queue = "unknown"
	_, err := s.engine.Claim(s.ctx, s.request(w, 1))
	s.wantCode("claim", err, posthaste.CodeNotFound)
	_, err = s.engine.Receive(s.ctx, posthaste.ReceiveRequest{QueueRef: s.ref(), Max: 1, Lease: time.Second})
	s.wantCode("receive", err, posthaste.CodeNotFound)
	s.wantCode("drop", s.engine.DropQueue(s.ctx, s.queue, posthaste.DropOptions{}), posthaste.CodeNotFound)
	s.queue = "suite"
	_, err = s.engine.Claim(s.ctx, posthaste.ClaimRequest{Worker: w, Number: 100, Max: 1,
		QueueRef: posthaste.QueueRef{Queue: s.queue, Subscription: "unknown"}})
	s.wantCode("claim of an unknown subscription", err, posthaste.CodeNotFound)
}
