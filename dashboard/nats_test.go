//go:build unix

package dashboard_test

import (
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// The pages on NATS: a message that waits, one that is scheduled and one that is dead, and no page
// that fails.
func TestPagesOnNATS(t *testing.T) {
	t.Parallel()
	engine := onNATS(t)
	dead := fillNATS(t, engine)
	v := newSite(t, engine).viewer(posthaste.ScopeAdmin)
	v.get("/dead-letters").want(200, "card was declined", dead.String(), "Replay all that match")
	v.get("/messages?queue=orders").want(200, dead.String())
	v.get("/schedules").want(200, "nightly")
	v.get("/search?q="+dead.String()).want(200, "card was declined")
	v.send(v.follow(v.get("/queues/orders"), "Pause").form("/pause")).want(200, "Paused.", "No message is handed out.")
	crawl(t, v, "")
}

// fillNATS adds messages in each state, and returns the dead one.
func fillNATS(t *testing.T, engine posthaste.Store) posthaste.MessageID {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(engine.CreateQueue(ctx, "orders", posthaste.QueueOptions{MaxAttempts: 1}))
	ids, err := posthaste.IDs(engine.Send(ctx, posthaste.Message{Queue: "orders", Kind: "paid", Key: "k", Reference: "r", Payload: 1}))
	must(err)
	got, err := engine.Receive(ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "orders"}, Max: 1, Lease: time.Minute})
	must(err)
	for _, d := range got.Deliveries {
		_, err = engine.Settle(ctx, []posthaste.Settlement{{Delivery: d.ID, Outcome: posthaste.OutcomeDead, Error: "card was declined"}})
		must(err)
	}
	for _, delay := range []time.Duration{0, time.Hour} {
		_, err = engine.Send(ctx, posthaste.Message{Queue: "orders", Kind: "paid", Payload: 2, Delay: delay})
		must(err)
	}
	_, err = engine.PutSchedule(ctx, posthaste.Schedule{Name: "nightly", Spec: "0 3 * * *", TimeZone: "Europe/Berlin", Message: posthaste.Message{Queue: "orders"}})
	must(err)
	return ids[0]
}
