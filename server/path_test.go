package server

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// Every key that a message can have can be paused, also those that no path can hold.
func TestEveryKeyCanBePaused(t *testing.T) {
	t.Parallel()
	var paused []string
	a := newAPI(t, func(_ *Config, h *hooked) {
		h.pause = func(_ context.Context, what posthaste.Pausable) error {
			paused = append(paused, what.(posthaste.OfKey).Key)
			return nil
		}
	})
	a.call("PUT", "/v1/queues/orders", `{}`).want(t, 201)
	for _, key := range []string{"/", ".", "..", "a/b", "//", "%2F", "%", " ", " a ", "?", "#", "+", "zoë", "\t", `"`, "\u2028", strings.Repeat("k", 255)} {
		body, err := json.Marshal(map[string]string{"key": key})
		if err != nil {
			t.Fatal(err)
		}
		paused = nil
		a.call("POST", "/v1/queues/orders/keys/pause", string(body)).want(t, 200)
		if len(paused) != 1 || paused[0] != key {
			t.Errorf("paused %q for the key %q", paused, key)
		}
	}
	for _, body := range []string{`{}`, `{"key":""}`, `{"key":null}`, `{"key":7}`} {
		a.call("POST", "/v1/queues/orders/keys/pause", body).wantProblem(t, 400, posthaste.CodeInvalid, "key")
		a.call("POST", "/v1/queues/orders/keys/resume", body).wantProblem(t, 400, posthaste.CodeInvalid, "key")
	}
}

// Names in a path that nothing can have are refused by the name of their place, before
// any store is asked; nothing is suggested to be made under them.
func TestNamesInPathsThatNothingCanHave(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.call("PUT", "/v1/queues/orders", `{}`).want(t, 201)
	fields := map[string]string{"{queue}": "queue", "{subscription}": "subscription", "{schedule}": "schedule", "{id}": "id"}
	for _, r := range a.server.routes() {
		for place, field := range fields {
			if !strings.Contains(r.path, place) {
				continue
			}
			for _, name := range []string{"a%00b", "a%2Fb", "%FF", "%C3%BC", "%2E", "%2E%2E", "A", "a%20b", "%20", strings.Repeat("a", 64)} {
				path := strings.NewReplacer(place, name, "{queue}", "orders", "{subscription}", "default", "{schedule}", "beat", "{id}", "1").Replace(r.path)
				p := a.call(r.method, path, ``).wantProblem(t, 400, posthaste.CodeInvalid, field)
				if p.Hint != "" || strings.Contains(p.Detail, "encoding") {
					t.Errorf("%s %s: %q, hint %q", r.method, path, p.Detail, p.Hint)
				}
			}
		}
	}
	a.call("GET", "/v1/queues/orders", ``).want(t, 200)
}

// A path with dots or without a name leads nowhere else: followed, deleting the
// subscription ".." would drop the queue.
func TestPathsAreNotFollowedElsewhere(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.call("PUT", "/v1/queues/orders", `{}`).want(t, 201)
	for _, c := range [][2]string{{"DELETE", "/v1/queues/orders/subscriptions/.."}, {"DELETE", "/v1/queues/orders/subscriptions//"},
		{"DELETE", "/v1/queues//orders"}, {"DELETE", "/v1/schedules/../queues/orders"}, {"POST", "/v1/queues/orders/./purge"}, {"POST", "/v1/queues//purge"}} {
		a.call(c[0], c[1], ``).want(t, 404)
	}
	a.call("GET", "/v1/queues/orders", ``).want(t, 200)
}

// A message that waits no more is not taken back, and the status says so.
func TestTakingBackTooLate(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.call("PUT", "/v1/queues/orders", `{}`).want(t, 201)
	var one wire.Sent
	a.call("POST", "/v1/queues/orders/messages", `{"payload":1}`).want(t, 201).into(t, &one)
	message := "/v1/messages/" + one.ID.String()
	later := func(status int) reply {
		return a.call("POST", message+"/reschedule", `{"send_at":"2099-01-01T00:00:00Z"}`).want(t, status)
	}
	a.call("POST", "/v1/queues/orders/receive", ``).want(t, 200)
	p := later(409).wantProblem(t, 409, posthaste.CodeConflict, "id")
	if len(p.Subscriptions) != 1 || p.Subscriptions[0].State != posthaste.StateRunning || p.Subscriptions[0].InTime || !strings.Contains(p.Detail, "running in default") {
		t.Errorf("told %+v", p)
	}
	a.call("POST", "/v1/queues/orders/messages", `{"payload":1}`).want(t, 201).into(t, &one)
	message = "/v1/messages/" + one.ID.String()
	later(200)
	a.call("DELETE", message, ``).want(t, 200)
	a.call("DELETE", message, ``).want(t, 200) // repeated it answers the same
	later(409)
}

// A message that runs is cancelled, and its holder is told when it extends its lease.
func TestR10_CancelOverHTTP(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.call("PUT", "/v1/queues/orders", `{}`).want(t, 201)
	var sent wire.SentMany
	a.call("POST", "/v1/queues/orders/messages/batch", `{"messages":[{"payload":1},{"payload":2}]}`).want(t, 201).into(t, &sent)
	var got []wire.Delivery
	a.call("POST", "/v1/queues/orders/receive", `{"max":2}`).want(t, 200).items(t, &got)
	mine, other := got[0].ID.String(), got[1].ID.String()
	message := "/v1/messages/" + got[0].MessageID.String()
	for range 2 { // idempotent
		if body := string(a.call("DELETE", message, ``).want(t, 200).body); !strings.Contains(body, `{"subscription":"default","in_time":false,"state":"running","requested":true}`) {
			t.Errorf("cancelling answered %s", body)
		}
	}
	if body := string(a.call("GET", message, ``).want(t, 200).body); !strings.Contains(body, `"cancel_requested_at":"`) {
		t.Errorf("it is shown as %s", body)
	}
	extend := `{"deliveries":[{"id":"` + mine + `","lease":"1m"},{"id":"` + other + `","lease":"1m"}]}`
	if body := string(a.call("POST", "/v1/deliveries/extend", extend).want(t, 200).body); strings.Count(body, `"cancelled":true`) != 1 || !strings.Contains(body, `{"id":"`+mine+`","settled":true,"cancelled":true}`) {
		t.Errorf("extending answered %s", body)
	}
	if body := string(a.call("POST", "/v1/deliveries/"+mine+"/extend", `{"checkpoint":7}`).want(t, 200).body); !strings.Contains(body, `"cancelled":true`) {
		t.Errorf("a checkpoint was answered by %s", body)
	}
	if body := string(a.call("POST", "/v1/deliveries/"+mine+"/fail", `{"error":"stopped"}`).want(t, 200).body); !strings.Contains(body, `"outcome":"cancelled"`) {
		t.Errorf("failing answered %s", body)
	}
	if body := string(a.call("DELETE", message, ``).want(t, 200).body); !strings.Contains(body, `{"subscription":"default","in_time":false,"state":"cancelled"}`) {
		t.Errorf("cancelling it again after its end answered %s", body)
	}
	a.call("POST", "/v1/deliveries/"+other+"/ack", ``).want(t, 200)
	a.call("DELETE", "/v1/messages/"+got[1].MessageID.String(), ``).wantProblem(t, 409, posthaste.CodeConflict, "id")
}

// Texts with a NUL are refused by their names wherever one is taken, but for the errors of
// attempts, which are taken as they come.
func TestTextsThatCannotBeStored(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.call("PUT", "/v1/queues/orders", `{}`).want(t, 201)
	for _, c := range [][3]string{
		{"/v1/queues/orders/keys/pause", `{"key":"\u0000"}`, "key"},
		{"/v1/queues/orders/keys/pause", `{"key":"\udc00"}`, "key"},
		{"/v1/erase", `{"term":"a\u0000"}`, "term"},
		{"/v1/dead-letters/replay", `{"filter":{"error":"\u0000"}}`, "filter.error"},
		{"/v1/queues/orders/messages", `{"payload":1,"headers":{"a":"\u0000"}}`, "headers.a"},
		{"/v1/deliveries/ack", `{"deliveries":[{"id":"4096","terms":["\u0000"]}]}`, "deliveries[0].terms[0]"},
	} {
		a.call("POST", c[0], c[1]).wantProblem(t, 400, posthaste.CodeInvalid, c[2])
	}
	a.call("PUT", "/v1/queues/orders/subscriptions/x", `{"filter":{"kind":["\u0000"]}}`).wantProblem(t, 400, posthaste.CodeInvalid, "filter.kind[0]")
	a.call("POST", "/v1/queues/orders/messages", `{"payload":1}`).want(t, 201)
	for _, text := range []string{`\u0000`, `\ud800`, `a\u0000b\udfff`} {
		var got []struct{ ID posthaste.DeliveryID }
		a.call("POST", "/v1/queues/orders/receive", ``).want(t, 200).items(t, &got)
		a.call("POST", "/v1/deliveries/fail", `{"deliveries":[{"id":"`+got[0].ID.String()+`","error":"`+text+`","retry_after":"0s"}]}`).want(t, 200)
	}
}
