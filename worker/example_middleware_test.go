package worker_test

import (
	"context"
	"fmt"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/posthastetest"
	"github.com/posthaste-mq/posthaste/worker"
)

// tenant passes the header tenant to handlers in the context. It dead-letters messages
// without the header.
func tenant(next posthaste.Handler) posthaste.Handler {
	return func(ctx context.Context, d posthaste.RawDelivery) error {
		name := d.Headers["tenant"]
		if name == "" {
			return posthaste.Permanent(fmt.Errorf("message %s has no header tenant", d.MessageID))
		}
		return next(context.WithValue(ctx, tenantKey{}, name), d)
	}
}

type tenantKey struct{}

// Middleware wraps all handlers of a worker, or the handlers of one queue.
func ExampleWithMiddleware() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	engine := posthastetest.Memory()
	must(engine.CreateQueue(ctx, "orders", posthaste.QueueOptions{}))
	_, err := engine.Send(ctx, posthaste.Message{Queue: "orders", Headers: map[string]string{"tenant": "Ada"}})
	must(err)

	around := func(text string) func(posthaste.Handler) posthaste.Handler {
		return func(next posthaste.Handler) posthaste.Handler {
			return func(ctx context.Context, d posthaste.RawDelivery) error {
				fmt.Println("before,", text)
				defer fmt.Println("after,", text)
				return next(ctx, d)
			}
		}
	}
	w := worker.New(engine, worker.Config{Middleware: []func(posthaste.Handler) posthaste.Handler{around("for all queues")}})
	worker.HandleRaw(w, "orders", func(ctx context.Context, _ posthaste.RawDelivery) error {
		defer stop()
		fmt.Println("an order of", ctx.Value(tenantKey{}))
		return nil
	}, worker.WithMiddleware(around("for orders"), tenant))
	must(w.Run(ctx))
	// Output:
	// before, for all queues
	// before, for orders
	// an order of Ada
	// after, for orders
	// after, for all queues
}
