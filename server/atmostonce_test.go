package server

import (
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// An at-most-once message whose receiver has left cannot be handed back. It is lost, the log
// reports it, and the server does not keep trying.
func TestAtMostOnceIsNotHandedBack(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	if err := a.engine.CreateQueue(t.Context(), "once", posthaste.QueueOptions{Mode: posthaste.AtMostOnce}); err != nil {
		t.Fatal(err)
	}
	a.call("POST", "/v1/queues/once/messages", `{"payload":1}`).want(t, 201)
	reply, err := a.engine.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "once"}, Max: 1, Lease: time.Minute})
	got := reply.Deliveries
	if err != nil || len(got) != 1 {
		t.Fatalf("%d deliveries, %v", len(got), err)
	}
	a.server.gatherer.release(got)
	if !strings.Contains(a.log.String(), "are lost") {
		t.Errorf("the log tells: %s", a.log)
	}
	a.call("POST", "/v1/deliveries/ack", `{"deliveries":[{"id":"`+got[0].ID.String()+`"}]}`).wantProblem(t, 409, posthaste.CodeConflict, "mode")
}
