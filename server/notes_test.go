package server

import (
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// A checkpoint over HTTP is handed to the next attempt, and refused once the delivery is not the
// caller's.
func TestR5_CheckpointOverHTTP(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.queue("orders")
	a.sendSome(2)
	receive := func() wire.Delivery {
		t.Helper()
		var got []wire.Delivery
		a.call("POST", "/v1/queues/orders/receive", `{"max":1}`).want(t, 200).items(t, &got)
		return got[0]
	}
	first, second := receive(), receive()
	note := func(d wire.Delivery, fields string) reply {
		t.Helper()
		return a.call("POST", "/v1/deliveries/extend", `{"deliveries":[{"id":"`+d.ID.String()+`",`+fields+`}]}`)
	}
	note(first, `"checkpoint":{"row":7},"progress":0.7,"progress_text":"rows","log":"one line"`).want(t, 200)
	note(first, `"log":"another"`).want(t, 200)
	var m wire.Message
	a.call("GET", "/v1/messages/"+first.MessageID.String(), "").want(t, 200).into(t, &m)
	if at := m.Subscriptions[0].Attempts[0]; string(at.Checkpoint) != `{"row":7}` || at.Progress != 0.7 || at.ProgressText != "rows" || at.Log != "one line\nanother\n" {
		t.Errorf("while it runs: %+v", at)
	}
	var list []wire.Message
	a.call("GET", "/v1/messages?state=running", "").want(t, 200).items(t, &list)
	if len(list) != 2 || list[1].Subscriptions[0].Attempts[0].Progress != 0.7 || list[1].Subscriptions[0].Attempts[0].Log != "" {
		t.Errorf("the list is %+v", list)
	}
	for fields, field := range map[string]string{
		`"progress":2`:            "progress",
		`"progress":"half"`:       "progress",
		`"progress_text":"x"`:     "progress_text",
		`"lease":"0s","log":"x"`:  "lease",
		`"checkpoint":"\u0000"`:   "",
		`"checkpoint":1,"more":1`: "more",
	} {
		want := "deliveries[0]." + field
		if field == "" {
			want = "checkpoint"
		}
		note(first, fields).wantProblem(t, 400, posthaste.CodeInvalid, want)
	}
	note(first, `"checkpoint":"`+strings.Repeat("x", posthaste.MaxCheckpointBytes)+`"`).wantProblem(t, 413, posthaste.CodeTooLarge, "deliveries[0].checkpoint")
	// The last one that was accepted counts, also beside a delivery that only gets a lease.
	a.call("POST", "/v1/deliveries/extend", `{"deliveries":[{"id":"`+first.ID.String()+`","checkpoint":8,"lease":"1m"},{"id":"`+second.ID.String()+`","lease":"1m"}]}`).want(t, 200)
	a.call("POST", "/v1/deliveries/release", `{"deliveries":[{"id":"`+first.ID.String()+`"}]}`).want(t, 200)
	note(first, `"checkpoint":9`).wantProblem(t, 409, posthaste.CodeConflict, "deliveries")
	if again := receive(); string(again.Checkpoint) != `8` || again.MessageID != first.MessageID || again.Attempt != 1 || again.Story[0].Checkpoint != nil || again.Story[0].Log == "" {
		t.Errorf("the next attempt is %+v", again)
	}
}
