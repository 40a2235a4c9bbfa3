package server

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// scoped returns callers with a token of each scope, and one more application.
func scoped(t *testing.T) (a *api, as func(name string, scopes ...Scope) *api) {
	a = newAPI(t, withTokens(t))
	for _, name := range []string{"orders", "emails"} {
		a.queue(name)
	}
	return a, func(name string, scopes ...Scope) *api {
		if len(scopes) == 0 {
			return a.as(name + "-secret")
		}
		return a.as(a.makeToken(posthaste.Token{Name: name, Scopes: scopes}))
	}
}

// An application sees the messages of its own token, whole, and no others: not the messages
// of another application, of SQL and Go, or of a token that reads.
func TestAnApplicationReadsWhatItSent(t *testing.T) {
	t.Parallel()
	a, as := scoped(t)
	shop, other := as("shop", ScopeSend), as("other", ScopeSend)
	var mine, theirs, mail, reader wire.Sent
	sent := shop.call("POST", "/v1/queues/orders/messages", `{"payload":{"a":1},"headers":{"h":"v","posthaste-sender":"http:other"},"terms":["t"]}`).want(t, 201)
	sent.into(t, &mine)
	other.call("POST", "/v1/queues/orders/messages", `{"payload":2}`).want(t, 201).into(t, &theirs)
	shop.call("POST", "/v1/emails", someEmail).want(t, 201).into(t, &mail)
	as("admin").call("POST", "/v1/queues/orders/messages", `{"payload":3}`).want(t, 201).into(t, &reader)
	by, err := posthaste.IDs(a.engine.Send(t.Context(), posthaste.Message{Queue: "orders"}))
	if err != nil {
		t.Fatal(err)
	}

	var m wire.Message
	shop.call("GET", sent.header.Get("Location"), "").want(t, 200).into(t, &m)
	if m.ID != mine.ID || string(m.Payload) != `{"a":1}` || m.Headers["h"] != "v" || m.Headers[posthaste.HeaderSender] != "http:shop" || !slices.Equal(m.Terms, []string{"t"}) || m.PayloadHidden {
		t.Errorf("it sees %+v of its own message", m)
	}
	var e wire.Email
	shop.call("GET", "/v1/emails/"+mail.ID.String(), "").want(t, 200).into(t, &e)
	if e.Subject != "Hello" || len(e.To) != 1 || e.PayloadHidden {
		t.Errorf("it sees %+v of its own e-mail", e)
	}
	for _, id := range []posthaste.MessageID{theirs.ID, reader.ID, by[0], 424242} {
		p := shop.call("GET", "/v1/messages/"+id.String(), "").wantProblem(t, 404, posthaste.CodeNotFound, "id")
		if want := strings.ReplaceAll(p.Detail, id.String(), "N"); want != "message N is unknown, or was not sent with this token" {
			t.Errorf("of message %s it learns: %s", id, p.Detail)
		}
	}
	other.call("GET", "/v1/messages/"+mine.ID.String(), "").want(t, 404)
	other.call("GET", "/v1/emails/"+mail.ID.String(), "").want(t, 404)
	shop.call("GET", "/v1/messages", "").want(t, 403)
	shop.call("DELETE", "/v1/messages/"+mine.ID.String(), "").want(t, 403)

	// A token that reads needs no record, and its messages have none.
	var read wire.Message
	as("admin").call("GET", "/v1/messages/"+reader.ID.String(), "").want(t, 200).into(t, &read)
	if read.Headers[posthaste.HeaderSender] != "" {
		t.Errorf("a message of a token that reads has the headers %v", read.Headers)
	}
	// A token for another queue does not reach it, even under the same name.
	if err := a.engine.RevokeToken(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	renamed := a.as(a.makeToken(posthaste.Token{Name: "shop", Scopes: []Scope{ScopeSend}, Queues: []string{"emails"}}))
	eventually(t, "the token is known", func() bool { return renamed.call("GET", "/metrics", "").status == 403 })
	renamed.call("GET", "/v1/messages/"+mine.ID.String(), "").wantProblem(t, 403, posthaste.CodeDenied, "queue")
}

// Without read:payload no answer has payloads, headers, terms or receipts, and each says so.
func TestPayloadsAreHidden(t *testing.T) {
	t.Parallel()
	const secret = "s3cret-content"
	a, as := scoped(t)
	admin := as("admin")
	var one wire.Sent
	admin.call("POST", "/v1/queues/orders/messages", `{"payload":"`+secret+`","headers":{"h":"`+secret+`"},"terms":["`+secret+`"],"key":"k","reference":"r"}`).want(t, 201).into(t, &one)
	admin.call("PUT", "/v1/schedules/beat", `{"queue":"orders","spec":"every 1 hour","payload":"`+secret+`","headers":{"h":"`+secret+`"},"terms":["`+secret+`"]}`).want(t, 201)
	var mail wire.Sent
	admin.call("POST", "/v1/emails", `{"from":"a@example.com","to":["`+secret+`@example.com"],"subject":"`+secret+`","text":"`+secret+`"}`).want(t, 201).into(t, &mail)
	fail := func() {
		var got []wire.Delivery
		admin.call("POST", "/v1/queues/orders/receive", "").want(t, 200).items(t, &got)
		admin.call("POST", "/v1/deliveries/"+got[0].ID.String()+"/fail", `{"error":"no","permanent":true,"receipt":"`+secret+`"}`).want(t, 200)
	}
	look := func(paths ...string) {
		t.Helper()
		for _, path := range paths {
			for scope, hidden := range map[string]bool{"read": true, "operate": true, "read:payload": false, "admin": false} {
				got := string(as(scope).call("GET", path, "").want(t, 200).body)
				if strings.Contains(got, secret) == hidden || strings.Contains(got, `"payload_hidden":true`) != hidden {
					t.Errorf("%s with %s: %s", path, scope, got)
				}
			}
		}
	}
	look("/v1/messages", "/v1/queues/orders/messages", "/v1/messages/"+one.ID.String(), "/v1/emails", "/v1/emails/"+mail.ID.String(), "/v1/schedules", "/v1/schedules/beat")
	fail()
	look("/v1/dead-letters", "/v1/dead-letters/"+one.ID.String(), "/v1/messages/"+one.ID.String())
	if got := string(as("operate").call("POST", "/v1/schedules/beat/pause", "").want(t, 200).body); strings.Contains(got, secret) {
		t.Errorf("a schedule that was paused: %s", got)
	}
	for _, search := range []string{"/v1/messages?term=", "/v1/queues/orders/messages?term=", "/v1/dead-letters?term=", "/v1/emails?recipient="} {
		as("read:payload").call("GET", search+secret, "").want(t, 200)
		p := as("operate").call("GET", search+secret, "").wantProblem(t, 403, posthaste.CodeDenied, "Authorization")
		if !strings.Contains(p.Detail, "read:payload") {
			t.Errorf("%s: %s", search, p.Detail)
		}
	}
	if m := a.log.String(); strings.Contains(m, secret) {
		t.Error("the content is in the log")
	}
}

// A replayed dead letter is ready, and says when and by whom it was replayed.
func TestReplayedMessagesSayBy(t *testing.T) {
	t.Parallel()
	a, as := scoped(t)
	operator := as("ops", ScopeOperate)
	a.token = "admin-secret"
	id := a.die("orders").String()
	before := time.Now()
	operator.call("POST", "/v1/dead-letters/"+id+"/replay", "").want(t, 200)
	check := func(state posthaste.State) {
		t.Helper()
		var m wire.Message
		a.call("GET", "/v1/messages/"+id, "").want(t, 200).into(t, &m)
		if s := m.Subscriptions[0]; s.State != state || s.ReplayedBy != "http:ops" || s.ReplayedAt.Before(before.Add(-time.Minute)) || s.ReplayedAt.IsZero() {
			t.Errorf("it is %+v", s)
		}
	}
	check(posthaste.StateReady)
	var got []wire.Delivery
	a.call("POST", "/v1/queues/orders/receive", "").want(t, 200).items(t, &got)
	check(posthaste.StateRunning)
	a.call("POST", "/v1/deliveries/"+got[0].ID.String()+"/ack", "").want(t, 200)
	check(posthaste.StateDone)
	operator.call("GET", "/v1/dead-letters/"+id, "").wantProblem(t, 404, posthaste.CodeNotFound, "id")
	operator.call("POST", "/v1/dead-letters/"+id+"/replay", "").wantProblem(t, 404, posthaste.CodeNotFound, "ids")
}
