package server

import (
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
)

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	const mail = `{"from":"a@example.com","to":["b@example.com"],"text":"x"}`
	for name, c := range map[string]struct{ path, body, other string }{
		"object": {"/v1/queues/orders/messages", `{"payload":1}`, `{"payload":2}`},
		"array":  {"/v1/queues/orders/messages/batch", `{"messages":[{"payload":1},{"payload":2}]}`, `{"messages":[{"payload":1}]}`},
		"e-mail": {"/v1/emails", mail, `{"from":"a@example.com","to":["b@example.com"],"text":"y"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(t)
			a.queue("orders")
			a.queue("others")
			a.queue("emails")
			key := []string{"Idempotency-Key", "one"}
			first := a.call("POST", c.path, c.body, key...)
			first.want(t, 201)
			again := a.call("POST", c.path, c.body, "Idempotency-Key", `"one"`)
			again.want(t, 201)
			if string(first.body) != string(again.body) {
				t.Errorf("answered %s, and again %s", first.body, again.body)
			}
			if first.header.Get("Idempotent-Replayed") != "" || again.header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("Idempotent-Replayed is %q, and again %q", first.header.Get("Idempotent-Replayed"), again.header.Get("Idempotent-Replayed"))
			}
			a.call("POST", c.path, c.other, key...).wantProblem(t, 422, posthaste.CodeKeyReused, "Idempotency-Key")
			fresh := a.call("POST", c.path, c.body, "Idempotency-Key", "two")
			fresh.want(t, 201)
			if string(first.body) == string(fresh.body) {
				t.Errorf("another key is answered with %s too", fresh.body)
			}
			if c.path != "/v1/emails" {
				other := a.call("POST", strings.Replace(c.path, "orders", "others", 1), c.body, key...)
				other.want(t, 201)
				if string(first.body) == string(other.body) {
					t.Errorf("another queue is answered with %s too", other.body)
				}
			}
		})
	}
}

// A mail may carry the key itself.
func TestIdempotencyKeyOfAMail(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.queue("emails")
	const mail = `{"from":"a@example.com","to":["b@example.com"],"text":"x","idempotency_key":"k"}`
	first, again := a.call("POST", "/v1/emails", mail), a.call("POST", "/v1/emails", mail, "Idempotency-Key", "k")
	first.want(t, 201)
	if string(first.body) != string(again.body) {
		t.Errorf("answered %s, and again %s", first.body, again.body)
	}
	a.call("POST", "/v1/emails", `{"from":"a@example.com","to":["b@example.com"],"text":"y","idempotency_key":"k"}`).
		wantProblem(t, 422, posthaste.CodeKeyReused, "Idempotency-Key")
}
