package worker_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/posthastetest"
	"github.com/posthaste-mq/posthaste/worker"
)

// Subscribe to the messages that this worker dead-letters.
func ExampleWorker_Events() {
	ctx, stop := context.WithCancel(context.Background())
	engine := posthastetest.Memory()
	if err := engine.CreateQueue(ctx, "orders", posthaste.QueueOptions{}); err != nil {
		panic(err)
	}
	if _, err := engine.Send(ctx, posthaste.Message{Queue: "orders", Payload: 7}); err != nil {
		panic(err)
	}

	w := worker.New(engine, worker.Config{})
	worker.Handle(w, "orders", func(context.Context, posthaste.Delivery[int]) error {
		return posthaste.Permanent(errors.New("no such customer"))
	})
	dead := w.Events(worker.EventFilter{
		Kinds:    []posthaste.EventKind{posthaste.EventSettled},
		Outcomes: []posthaste.Outcome{posthaste.OutcomeDead},
	})
	read := make(chan struct{})
	go func() {
		defer close(read)
		for e := range dead.C() { // until Run has returned
			fmt.Printf("message %s of queue %s is dead: %v\n", e.Message, e.Queue, e.Err)
			stop() // one is enough here
		}
	}()
	if err := w.Run(ctx); err != nil {
		panic(err)
	}
	<-read
	fmt.Println("dropped:", dead.Dropped())
	// Output:
	// message 1 of queue orders is dead: no such customer
	// dropped: 0
}
