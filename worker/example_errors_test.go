package worker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/posthastetest"
	"github.com/posthaste-mq/posthaste/worker"
)

// The error that a handler returns decides whether and when its message is retried.
func Example_errors() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	engine := posthastetest.Memory()
	must(engine.CreateQueue(ctx, "orders", posthaste.QueueOptions{}))
	var messages []posthaste.Message
	for _, item := range []string{"pen", "sofa", "ice", "eggs"} {
		messages = append(messages, posthaste.Message{Queue: "orders", Payload: item})
	}
	ids, err := posthaste.IDs(posthaste.NewClient(engine).Send(ctx, messages...))
	must(err)

	w := worker.New(engine, worker.Config{})
	worker.Handle(w, "orders", func(_ context.Context, d posthaste.Delivery[string]) error {
		if d.MessageID == ids[len(ids)-1] {
			defer stop() // the last message
		}
		switch d.Payload {
		case "sofa": // a retry cannot succeed: dead-letter it now
			return posthaste.Permanent(errors.New("too large to ship"))
		case "ice": // retry after the time that the carrier named
			return posthaste.RetryAfter(errors.New("the carrier is busy"), time.Hour)
		case "eggs": // try again later, without counting an attempt
			return posthaste.Snooze(10 * time.Minute)
		}
		return nil
	}, worker.WithConcurrency(1)) // one at a time, to keep the order
	must(w.Run(ctx))

	for i, id := range ids {
		m, err := engine.Message(context.Background(), id)
		must(err)
		fmt.Println(messages[i].Payload, "is", m.Subscriptions[0].State)
	}
	// Output:
	// pen is done
	// sofa is dead
	// ice is retrying
	// eggs is scheduled
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
