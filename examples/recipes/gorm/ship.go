// Command gorm sends a message in a transaction of GORM, and acknowledges it in another.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync/atomic"

	pg "gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

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
	db, err := gorm.Open(pg.Open(os.Getenv("DATABASE_URL")), &gorm.Config{Logger: logger.Discard})
	check(err)
	engine, err := postgres.Open(ctx, os.Getenv("DATABASE_URL"))
	check(err)
	defer engine.Close()

	// The order and its message commit together. Use tx, not db.
	check(db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		order := Order{ID: 7, Item: "lamp"}
		if err := tx.Create(&order).Error; err != nil {
			return err
		}
		_, err := postgres.InSQL(tx.Statement.ConnPool).Send(ctx, posthaste.Message{Queue: "orders", Payload: map[string]int{"order": order.ID}, Reference: "order-7"})
		return err
	}))

	var handled atomic.Int32
	w := worker.New(engine, worker.Config{})
	worker.Handle(w, "orders", func(ctx context.Context, d posthaste.Delivery[map[string]int]) error {
		if handled.Add(1) == 2 {
			defer stop() // two messages are enough here; a service would keep running
		}
		// The shipment and the acknowledgment commit together.
		err := db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			if err := tx.Create(&Shipment{OrderID: d.Payload["order"]}).Error; err != nil {
				return err
			}
			return postgres.InSQL(tx.Statement.ConnPool).Ack(ctx, d.ID)
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
