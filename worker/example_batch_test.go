package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/posthastetest"
	"github.com/posthaste-mq/posthaste/worker"
)

// A batch handler gets several messages in one call and returns a result for each.
func ExampleHandleBatch() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	engine := posthastetest.Memory()
	must(engine.CreateQueue(ctx, "orders", posthaste.QueueOptions{}))
	_, err := engine.Send(ctx,
		posthaste.Message{Queue: "orders", Payload: 1},
		posthaste.Message{Queue: "orders", Payload: -2},
		posthaste.Message{Queue: "orders", Payload: "three"}, // not a number: dead-lettered alone
		posthaste.Message{Queue: "orders", Payload: 4})
	must(err)

	quiet := slog.New(slog.DiscardHandler)
	w := worker.New(engine, worker.Config{Logger: quiet})
	worker.HandleBatch(w, "orders", func(_ context.Context, batch []posthaste.Delivery[int]) []error {
		defer stop()
		fmt.Println(len(batch), "messages")
		errs := make([]error, len(batch))
		for i, d := range batch {
			if d.Payload < 0 {
				errs[i] = posthaste.Permanent(errors.New("a negative amount"))
			}
		}
		return errs
	}, worker.WithBatchSize(500))
	must(w.Run(ctx))

	letters, err := engine.DeadLetters(context.Background(), posthaste.DeadLetterFilter{Queue: "orders"})
	must(err)
	fmt.Println(len(letters.Items), "dead letters")
	// Output:
	// 3 messages
	// 2 dead letters
}
