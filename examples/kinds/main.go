// Command kinds sends e-mails and text messages through one queue. Each kind has a handler of its
// own, and options of its own.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/worker"
)

// Email is a message of the kind "email".
type Email struct {
	To   string `json:"to"`
	Text string `json:"text"`
}

func (Email) Kind() string { return "email" }

// SendDefaults are used where a message does not set the field itself.
func (Email) SendDefaults() posthaste.Message { return posthaste.Message{Queue: "notices"} }

// SMS is a message of the kind "sms". It is tried at most three times.
type SMS struct {
	Number string `json:"number"`
	Text   string `json:"text"`
}

func (SMS) Kind() string { return "sms" }

func (SMS) SendDefaults() posthaste.Message {
	return posthaste.Message{Queue: "notices", MaxAttempts: 3, Timeout: 5 * time.Second, Backoff: posthaste.Backoff{Base: 10 * time.Millisecond}}
}

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	check(err)
	engine := postgres.New(pool)
	check(engine.CreateQueue(ctx, "notices", posthaste.QueueOptions{}))

	check(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := postgres.In(tx).Send(ctx,
			posthaste.Message{Payload: Email{"ada@example.com", "Your order is on its way."}},
			posthaste.Message{Payload: SMS{"+44 1234", "Your order is on its way."}})
		return err
	}))

	var left atomic.Int32
	left.Store(2)
	done := func() {
		if left.Add(-1) == 0 {
			stop() // two messages are enough here; a service would keep running
		}
	}
	w := worker.New(engine, worker.Config{})
	worker.Register(w, "notices", func(_ context.Context, d posthaste.Delivery[Email]) error {
		fmt.Printf("e-mail to %s, attempt %d\n", d.Payload.To, d.Attempt)
		done()
		return nil
	})
	worker.Register(w, "notices", func(_ context.Context, d posthaste.Delivery[SMS]) error {
		if d.Attempt == 1 {
			return errors.New("the gateway is busy")
		}
		fmt.Printf("text message to %s, attempt %d\n", d.Payload.Number, d.Attempt)
		done()
		return nil
	})
	check(w.Run(ctx))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
