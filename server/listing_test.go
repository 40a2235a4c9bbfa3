package server

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
)

// cutSearch is a store that looks at so many messages at a time in a search by
// a state, as a real one does with ten thousand.
type cutSearch struct {
	states map[posthaste.MessageID]posthaste.State
	looks  map[posthaste.State]int
}

func (c *cutSearch) list(_ context.Context, f posthaste.MessageFilter) (page posthaste.Page[posthaste.MessageInfo], err error) {
	looked := 0
	var found []posthaste.MessageInfo
	whole := func(cutAt posthaste.MessageID) (posthaste.Page[posthaste.MessageInfo], error) {
		return posthaste.NewPage(found, f.Limit, cutAt, func(m *posthaste.MessageInfo) posthaste.MessageID { return m.ID }), nil
	}
	for id := posthaste.MessageID(len(c.states)); id > 0 && len(found) < f.Limit; id-- {
		if f.Before != 0 && id >= f.Before {
			continue
		}
		if f.State != "" && looked == c.looks[f.State] {
			return whole(id + 1)
		}
		looked++
		if f.State == "" || c.states[id] == f.State {
			found = append(found, posthaste.MessageInfo{ID: id, Queue: "emails", ContentType: "application/json",
				Subscriptions: []posthaste.MessageState{{Subscription: posthaste.DefaultSubscription, State: c.states[id]}}})
		}
	}
	return whole(0)
}

// A client that follows next finds each message once, also where searches are cut,
// and where several states are one status.
func TestListsOfMessagesGoOn(t *testing.T) {
	t.Parallel()
	store := cutSearch{states: map[posthaste.MessageID]posthaste.State{}, looks: map[posthaste.State]int{
		posthaste.StateDone: 7, posthaste.StateDead: 7, posthaste.StateScheduled: 30, posthaste.StateReady: 7, posthaste.StateRetrying: 12,
	}}
	waiting := []posthaste.State{posthaste.StateScheduled, posthaste.StateReady, posthaste.StateRetrying}
	want := map[posthaste.State][]posthaste.MessageID{}
	for id := posthaste.MessageID(40); id > 0; id-- {
		store.states[id] = posthaste.StateDone
		// The two newest of them are far from all others.
		if id > 38 || id < 20 {
			store.states[id] = waiting[id%3]
		}
		want[store.states[id]] = append(want[store.states[id]], id)
		want[""] = append(want[""], id)
		if store.states[id] != posthaste.StateDone {
			want["waiting"] = append(want["waiting"], id)
		}
	}
	a := newAPI(t, func(_ *Config, h *hooked) { h.list = store.list })
	for path, want := range map[string][]posthaste.MessageID{
		"/v1/messages?limit=40":                               want[""],
		"/v1/messages?limit=9":                                want[""],
		"/v1/messages?queue=emails&state=done":                want[posthaste.StateDone],
		"/v1/messages?state=ready&limit=3":                    want[posthaste.StateReady],
		"/v1/messages?state=dead":                             nil, // which this store has to look for
		"/v1/messages?state=ready,scheduled,retrying&limit=3": want["waiting"],
		"/v1/queues/emails/messages?state=done&limit=3":       want[posthaste.StateDone],
		"/v1/emails?status=scheduled":                         want["waiting"],
		"/v1/emails?status=scheduled&limit=2":                 want["waiting"],
		"/v1/emails?limit=11":                                 want[""],
	} {
		var found []posthaste.MessageID
		cursor, pages := "", 0
		for more := true; more && pages < 50; pages++ {
			at := path
			if cursor != "" {
				at += "&cursor=" + cursor
			}
			answer := a.call("GET", at, "").want(t, 200)
			var page []struct {
				ID posthaste.MessageID `json:"id"`
			}
			answer.items(t, &page)
			for _, m := range page {
				found = append(found, m.ID)
			}
			cursor = answer.next(t)
			more = cursor != ""
		}
		if pages == 0 || !slices.Equal(found, want) {
			t.Errorf("%s: after %d pages %v, want %v", path, pages, found, want)
		}
	}
}

// A parameter that is given and empty is refused, wherever one is taken: what selects
// by it would select everything where a caller's value is missing.
func TestEmptyParametersAreRefused(t *testing.T) {
	t.Parallel()
	doc, err := spec()
	if err != nil {
		t.Fatal(err)
	}
	a := newAPI(t)
	a.call("PUT", "/v1/queues/orders", `{}`).want(t, 201)
	tried := 0
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			for _, p := range operation.Parameters {
				if p.Value.In == "query" {
					tried++
					at := strings.NewReplacer("{queue}", "orders", "{id}", "1").Replace(path) + "?" + p.Value.Name + "="
					a.call(method, at, ``).wantProblem(t, 400, posthaste.CodeInvalid, p.Value.Name)
				}
			}
		}
	}
	if tried < 20 {
		t.Fatalf("only %d parameters are described", tried)
	}
}
