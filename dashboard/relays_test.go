package dashboard_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// relayed is a store with a relay that fails, one whose process was lost, and one that is idle.
func relayed(t *testing.T) (stock *stocked, failed posthaste.MessageID) {
	t.Helper()
	stock = newStock(t)
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range []posthaste.WorkerInfo{
		{Name: "relay-1/7", Version: "2.0", Lease: time.Minute, Sinks: []posthaste.WorkerSink{
			{Queue: "orders", Subscription: "default", Destination: "Kafka at broker:9092"}, {Queue: "outbox", Subscription: "default", Destination: "RabbitMQ at rabbit:5672"}, {Queue: "dropped", Subscription: "default"}}},
		{Name: "relay-2/8", Version: "2.0", Lease: time.Minute, Sinks: []posthaste.WorkerSink{{Queue: "orders", Subscription: "default", Destination: "Kafka at broker:9092"}}},
		{Name: "mailer/9", Lease: time.Minute, Sinks: []posthaste.WorkerSink{{Queue: "halted", Subscription: "default", Destination: "mail server mail:587"}}},
	} {
		_, err := stock.Register(ctx, w)
		must(err)
	}
	must(stock.CreateQueue(ctx, "outbox", posthaste.QueueOptions{}))
	ids, err := posthaste.IDs(stock.Send(ctx, posthaste.Message{Queue: "outbox", Payload: 1}))
	must(err)
	got, err := stock.Receive(ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "outbox"}, Max: 1, Lease: time.Minute})
	must(err)
	_, err = stock.Settle(ctx, []posthaste.Settlement{{Delivery: got.Deliveries[0].ID, Outcome: posthaste.OutcomeRetried, Error: "exchange not found", RetryAfter: time.Hour}})
	must(err)
	return stock, ids[0]
}

// A person sees which relay fails and why, pauses it, replays its dead letters, and sends a test
// message.
func TestRelays(t *testing.T) {
	t.Parallel()
	stock, failed := relayed(t)
	v := newSite(t, stock).viewer(posthaste.ScopeAdmin)
	page := v.follow(v.get("/"), "Relays").want(200,
		"Kafka at broker:9092 waiting orders 1 ", someError, "attempt 1", "relay-1/7 2.0 relay-2/8 2.0",
		"RabbitMQ at rabbit:5672 failing outbox 1 ", "exchange not found attempt 1",
		"mail server mail:587 paused halted", "not named by its program", "The subscription no longer exists.")
	v.follow(page, "exchange not found").want(200, "Message "+failed.String())
	v.follow(page, "Test message").want(200, "Send a test message to ")
	replay := v.follow(page, "Replay").want(200, "1 dead letter")
	v.send(replay.form("/replay")).want(200, "Replayed 1 message.")
	v.get("/relays").want(200).lacks(someError)
	paused := v.follow(v.get("/relays"), "Pause queue")
	v.send(paused.form("/pause")).want(200, "Paused.")
	v.get("/relays").want(200, "Kafka at broker:9092 paused orders")
}

func TestRelaysWithoutProcess(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	v := newSite(t, stock).viewer(posthaste.ScopeRead)
	v.get("/relays").want(200, "No process is registered")
	lost := &lostRelay{stock}
	v = newSite(t, lost).viewer(posthaste.ScopeRead)
	page := v.get("/relays").want(200, "Kafka at broker:9092 lost orders", "lost gone/1")
	for _, action := range []string{"/pause", "/replay", "/send"} {
		if strings.Contains(page.body, action) {
			t.Errorf("a reader is offered %s", action)
		}
	}
}

type lostRelay struct{ *stocked }

func (s *lostRelay) Workers(context.Context) ([]posthaste.WorkerStatus, error) {
	return []posthaste.WorkerStatus{{ID: 1, Name: "gone/1", LostAt: time.Now(), Sinks: []posthaste.WorkerSink{{Queue: "orders", Subscription: "default", Destination: "Kafka at broker:9092"}}}}, nil
}
