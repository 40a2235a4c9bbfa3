// Command hello sends a message inside a transaction and handles it.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/worker"
)

type order struct {
	Number   int    `json:"number"`
	Customer string `json:"customer"`
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	check(err)
	engine := postgres.New(pool)
	check(engine.CreateQueue(ctx, "orders", posthaste.QueueOptions{}))

	// The message is sent if the transaction commits, and never if it rolls back.
	check(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		message := posthaste.Message{Queue: "orders", Payload: order{7, "Ada"}}
		_, err := postgres.In(tx).Send(ctx, message) // next to your own statements
		return err
	}))

	w := worker.New(engine, worker.Config{})
	worker.Handle(w, "orders", func(_ context.Context, d posthaste.Delivery[order]) error {
		fmt.Printf("order %d of %s, attempt %d\n", d.Payload.Number, d.Payload.Customer, d.Attempt)
		stop() // one message is enough here; a service would keep running
		return nil
	})
	check(w.Run(ctx))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
