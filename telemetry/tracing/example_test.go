package tracing_test

import (
	"context"
	"fmt"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/posthastetest"
	"github.com/posthaste-mq/posthaste/telemetry/tracing"
	"github.com/posthaste-mq/posthaste/worker"
)

// One trace leads from the sender's span to the settlement of its message.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	// A program exports with OTLP. This example records its spans and prints them.
	spans := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	traces := tracing.New(provider)

	engine := posthastetest.Memory()
	if err := engine.CreateQueue(ctx, "orders", posthaste.QueueOptions{}); err != nil {
		panic(err)
	}

	// The sender: wrap the client, and pass the context of your span to Send. For a
	// transaction use traces.Sender(postgres.In(tx)).
	client := traces.Sender(posthaste.NewClient(engine))
	sending, span := provider.Tracer("shop").Start(ctx, "order placed")
	if _, err := client.Send(sending, posthaste.Message{Queue: "orders", Payload: "42"}); err != nil {
		panic(err)
	}
	span.End()

	// The worker: each handler's context carries the span of its attempt.
	working, stop := context.WithCancel(ctx)
	w := worker.New(engine, worker.Config{Tracing: traces})
	worker.Handle(w, "orders", func(ctx context.Context, d posthaste.Delivery[string]) error {
		defer stop() // one message is enough here
		_, span := provider.Tracer("shop").Start(ctx, "card charged")
		defer span.End()
		return nil
	})
	if err := w.Run(working); err != nil { // running messages finish and are settled
		panic(err)
	}

	trace := span.SpanContext().TraceID()
	for _, name := range []string{"order placed", "send orders", "process orders", "card charged", "settle orders"} {
		for _, s := range spans.GetSpans() {
			if s.Name == name && s.SpanContext.TraceID() == trace {
				fmt.Println(s.Name)
			}
		}
	}
	// Output:
	// order placed
	// send orders
	// process orders
	// card charged
	// settle orders
}
