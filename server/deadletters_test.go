package server

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// Dead letters are replayed and discarded by filter, page by page, and the record names the
// token of the caller.
func TestDeadLettersByFilter(t *testing.T) {
	t.Parallel()
	token, err := NewToken("ops", "secret", ScopeAdmin)
	if err != nil {
		t.Fatal(err)
	}
	a := newAPI(t, func(c *Config, _ *hooked) { c.Tokens = []posthaste.Token{token} })
	a.token = "secret"
	a.queue("orders")
	ids, err := posthaste.IDs(a.engine.Send(t.Context(), posthaste.Message{Queue: "orders", Key: "a"}, posthaste.Message{Queue: "orders", Key: "b"}, posthaste.Message{Queue: "orders", Key: "a"}))
	if err != nil {
		t.Fatal(err)
	}
	reply, err := a.engine.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "orders"}, Max: 3, Lease: time.Minute})
	got := reply.Deliveries
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range got {
		if _, err := a.engine.Settle(t.Context(), []posthaste.Settlement{{Delivery: d.ID, Outcome: posthaste.OutcomeDead, Error: "no"}}); err != nil {
			t.Fatal(err)
		}
	}
	var answer wire.Decided
	a.call("POST", "/v1/dead-letters/replay", `{"filter":{"key":"a"},"limit":1}`).want(t, 200).into(t, &answer)
	if !slices.Equal(answer.IDs, ids[2:]) || !answer.HasMore {
		t.Fatalf("replayed %+v, want %v and where to go on", answer, ids[2:])
	}
	next := answer.Next
	answer = wire.Decided{}
	a.call("POST", "/v1/dead-letters/replay", `{"filter":{"key":"a"},"cursor":"`+next+`"}`).want(t, 200).into(t, &answer)
	if !slices.Equal(answer.IDs, ids[:1]) || answer.HasMore || answer.Next != "" {
		t.Fatalf("replayed %+v, want %v and no more", answer, ids[:1])
	}
	answer = wire.Decided{}
	a.call("POST", "/v1/dead-letters/discard", `{"filter":{"queue":"orders"}}`).want(t, 200).into(t, &answer)
	if !slices.Equal(answer.IDs, ids[1:2]) {
		t.Errorf("discarded %+v", answer)
	}
	p := a.call("POST", "/v1/dead-letters/discard", `{"ids":["`+ids[1].String()+`"]}`).wantProblem(t, 404, posthaste.CodeNotFound, "ids")
	if !slices.Equal(p.IDs, []string{ids[1].String()}) || !strings.Contains(p.Detail, ids[1].String()) {
		t.Errorf("discarded again: %+v", p)
	}
	var actions []wire.Action
	page := a.call("GET", "/v1/actions?queue=orders&limit=2", "").want(t, 200)
	page.items(t, &actions)
	if len(actions) != 2 || actions[0].By != "http:ops" || actions[0].Action != "discard" || actions[0].MessageID != ids[1] {
		t.Errorf("actions: %s", page.body)
	}
	older := page.next(t)
	a.call("GET", "/v1/actions?queue=orders&limit=2&cursor="+older, "").want(t, 200).items(t, &actions)
	if len(actions) == 0 || actions[0].MessageID != ids[2] {
		t.Errorf("the next page is %+v", actions)
	}
}
