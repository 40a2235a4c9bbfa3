package server

import (
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// A duplicate by a unique key and a message that was replaced are told by 200, with the state of
// the message that holds the key.
func TestR3_UniqueOverHTTP(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.queue("orders")
	const path = "/v1/queues/orders/messages"
	var first, sent wire.Sent
	a.call("POST", path, `{"payload":1,"unique":{"key":"k","until":"resolved"}}`).want(t, 201).into(t, &first)
	a.call("POST", path, `{"payload":2,"unique":{"key":"k"}}`).want(t, 200).into(t, &sent)
	if sent != (wire.Sent{ID: first.ID, Duplicate: true, State: posthaste.StateReady}) {
		t.Errorf("a duplicate is told as %+v", sent)
	}
	sent = wire.Sent{}
	a.call("POST", path, `{"payload":3,"delay":"1h","unique":{"key":"k","exists":"replace","max_delay":"1m"}}`).want(t, 200).into(t, &sent)
	if sent != (wire.Sent{ID: first.ID, Replaced: true}) {
		t.Errorf("a replacement is told as %+v", sent)
	}
	a.call("POST", path, `{"payload":4,"unique":{}}`).want(t, 201)
	a.call("POST", path, `{"payload":4,"unique":{}}`).want(t, 200)
	for _, body := range []string{`{"payload":1,"unique":7}`, `{"payload":1,"unique":{"shade":1}}`, `{"payload":1,"unique":{"until":"ever"}}`, `{"payload":1,"unique":{},"dedupe_key":"d"}`} {
		if got := a.call("POST", path, body).want(t, 400); !strings.Contains(string(got.body), "unique") {
			t.Errorf("%s: %s", body, got.body)
		}
	}
}

// A change needs the version that it is meant for.
func TestR7_UpdateOverHTTP(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.queue("orders")
	var sent, now wire.Sent
	a.call("POST", "/v1/queues/orders/messages", `{"payload":1}`).want(t, 201).into(t, &sent)
	path := "/v1/messages/" + sent.ID.String()
	patch := func(match, body string) reply {
		if match == "" {
			return a.call("PATCH", path, body)
		}
		return a.call("PATCH", path, body, "If-Match", match)
	}
	tag := a.call("GET", path, "").want(t, 200).header.Get("ETag")
	patch("", `{"payload":2}`).want(t, 400)
	patch("bare", `{"payload":2}`).want(t, 400)
	patch(`"old"`, `{"payload":2}`).want(t, 412)
	patch(tag, `{"shade":2}`).want(t, 400)
	changed := patch(tag, `{"payload":2,"kind":"k"}`).want(t, 200)
	changed.into(t, &now)
	if next := changed.header.Get("ETag"); next == tag || next != a.call("GET", path, "").header.Get("ETag") || now.ID != sent.ID {
		t.Errorf("the change returned ETag %s after %s, and %s", next, tag, changed.body)
	}
	patch("*", `{"payload":3}`).want(t, 200)
	a.call("POST", "/v1/queues/orders/receive", "").want(t, 200)
	patch("*", `{"payload":4}`).want(t, 409)
	if p := a.call("POST", path+"/run", "").wantProblem(t, 409, posthaste.CodeConflict, "id"); len(p.Subscriptions) != 1 || p.Subscriptions[0].State != posthaste.StateRunning {
		t.Errorf("of a running message it tells %+v", p.Subscriptions)
	}
}
