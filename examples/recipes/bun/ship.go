// Command bun sends a message in a transaction of Bun, and acknowledges it in another.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"sync/atomic"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/worker"
)

type Order struct {
	ID   int
	Item string
}

type Shipment struct {
	OrderID int
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	pool, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	check(err)
	db := bun.NewDB(pool, pgdialect.New())
	engine, err := postgres.Open(ctx, os.Getenv("DATABASE_URL"))
	check(err)
	defer engine.Close()

	// The order and its message commit together.
	check(db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		order := Order{ID: 7, Item: "lamp"}
		if _, err := tx.NewInsert().Model(&order).Exec(ctx); err != nil {
			return err
		}
		_, err := postgres.InSQL(tx).Send(ctx, posthaste.Message{Queue: "orders", Payload: map[string]int{"order": order.ID}, Reference: "order-7"})
		return err
	}))

	var handled atomic.Int32
	w := worker.New(engine, worker.Config{})
	worker.Handle(w, "orders", func(ctx context.Context, d posthaste.Delivery[map[string]int]) error {
		if handled.Add(1) == 2 {
			defer stop() // two messages are enough here; a service would keep running
		}
		// The shipment and the acknowledgment commit together.
		err := db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			if _, err := tx.NewInsert().Model(&Shipment{OrderID: d.Payload["order"]}).Exec(ctx); err != nil {
				return err
			}
			return postgres.InSQL(tx).Ack(ctx, d.ID)
		})
		if err == nil {
			fmt.Println("shipped order", d.Payload["order"])
		}
		return err
	}, worker.WithOwnTransaction())
	check(w.Run(ctx))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
