package posthastetest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/posthastetest"
	"github.com/posthaste-mq/posthaste/worker"
)

// The program under test ships orders and requests an invoice for each.

type order struct{ Number, Amount int }

func shipping(engine posthaste.Store) *worker.Worker {
	w := worker.New(engine, worker.Config{})
	worker.Handle(w, "orders", func(ctx context.Context, d posthaste.Delivery[order]) error {
		if d.Payload.Amount <= 0 {
			return posthaste.Permanent(errors.New("nothing to ship"))
		}
		_, err := engine.Send(ctx, posthaste.Message{Queue: "invoices", Payload: d.Payload})
		return err
	})
	return w
}

// The test of the program.

func TestShipping(t *testing.T) {
	engine := posthastetest.Memory()
	for _, queue := range []string{"orders", "invoices"} {
		// Retry failures immediately.
		options := posthaste.QueueOptions{BackoffBase: time.Millisecond, BackoffMax: time.Millisecond}
		if err := engine.CreateQueue(t.Context(), queue, options); err != nil {
			t.Fatal(err)
		}
	}
	client := posthaste.NewClient(engine)
	_, err := client.Send(t.Context(),
		posthaste.Message{Queue: "orders", Payload: order{Number: 7, Amount: 2}},
		posthaste.Message{Queue: "orders", Payload: order{Number: 8, Amount: 0}})
	if err != nil {
		t.Fatal(err)
	}

	posthastetest.Drain(t, engine, shipping(engine))

	invoices := posthastetest.Payloads[order](t, engine, "invoices")
	if fmt.Sprint(invoices) != "[{7 2}]" {
		t.Errorf("invoices = %v, want [{7 2}]", invoices)
	}
	refused := posthastetest.Sent(t, engine, "orders")[1].Subscriptions[0]
	if refused.State != posthaste.StateDead || refused.Attempts[0].Error != "nothing to ship" {
		t.Errorf("order 8 is %s: %v", refused.State, refused.Attempts)
	}
}
