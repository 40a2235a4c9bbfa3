package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/posthastetest"
	"github.com/posthaste-mq/posthaste/worker"
)

// A retry policy sets the delay before the next attempt.
func Example_retryPolicy() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	engine := posthastetest.Memory() // or postgres.New(pool)
	must(engine.CreateQueue(ctx, "calls", posthaste.QueueOptions{BackoffBase: time.Hour}))
	_, err := posthaste.NewClient(engine).Send(ctx, posthaste.Message{Queue: "calls", Payload: "ada"})
	must(err)

	busy := errors.New("the line is busy")
	policy := worker.RetryPolicyFunc(func(_ posthaste.RawDelivery, err error) time.Duration {
		if errors.Is(err, busy) {
			return 10 * time.Millisecond
		}
		return 0 // use the queue's backoff
	})
	w := worker.New(engine, worker.Config{Logger: slog.New(slog.DiscardHandler)})
	worker.Handle(w, "calls", func(_ context.Context, d posthaste.Delivery[string]) error {
		fmt.Printf("attempt %d to call %s\n", d.Attempt, d.Payload)
		if d.Attempt == 1 {
			return busy
		}
		stop() // one call is enough here
		return nil
	}, worker.WithRetryPolicy(policy))
	must(w.Run(ctx))
	// Output:
	// attempt 1 to call ada
	// attempt 2 to call ada
}
