package msgpack_test

import (
	"context"
	"fmt"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/codec/msgpack"
	"github.com/posthaste-mq/posthaste/posthastetest"
	"github.com/posthaste-mq/posthaste/worker"
)

type order struct {
	Number   int    `json:"number"`
	Customer string `json:"customer"`
}

// The sender chooses the codec; the worker decodes every content type for which it has a
// codec.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	engine := posthastetest.Memory()
	check(engine.CreateQueue(ctx, "orders", posthaste.QueueOptions{}))
	_, err := posthaste.NewClient(engine).Send(ctx,
		posthaste.Message{Queue: "orders", Payload: order{7, "Ada"}, Codec: msgpack.Codec},
		posthaste.Message{Queue: "orders", Payload: order{8, "Ben"}}) // JSON
	check(err)

	w := worker.New(engine, worker.Config{Codecs: []posthaste.Codec{msgpack.Codec}})
	worker.Handle(w, "orders", func(_ context.Context, d posthaste.Delivery[order]) error {
		fmt.Printf("order %d of %s came as %s\n", d.Payload.Number, d.Payload.Customer, d.ContentType)
		if d.Payload.Number == 8 {
			stop()
		}
		return nil
	}, worker.WithConcurrency(1))
	check(w.Run(ctx))
	// Output:
	// order 7 of Ada came as application/msgpack
	// order 8 of Ben came as application/json
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
