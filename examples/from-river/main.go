// Command from-river is a small shop with its jobs in Posthaste. The program in the folder river
// is the same with River.
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

// Ship is a message that is sent with its order, and acknowledged with it.
type Ship struct {
	Order int `json:"order"`
}

func (Ship) Kind() string { return "ship" }

func (Ship) SendDefaults() posthaste.Message {
	return posthaste.Message{Queue: "shipping", MaxAttempts: 5, Timeout: 10 * time.Second}
}

func (s *shop) ship(ctx context.Context, d posthaste.Delivery[Ship]) error {
	if d.Attempt == 1 {
		return errors.New("the carrier is busy")
	}
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "update shop_orders set shipped = true where id = $1", d.Payload.Order); err != nil {
			return err
		}
		return postgres.In(tx).Ack(ctx, d.ID)
	})
	if err == nil {
		s.done("shipped order %d, attempt %d", d.Payload.Order, d.Attempt)
	}
	return err
}

func nextShip(d posthaste.RawDelivery, _ error) time.Duration {
	return time.Duration(d.Attempt) * 100 * time.Millisecond
}

// Review asks for a review after the order was shipped.
type Review struct {
	Order int `json:"order"`
}

func (Review) Kind() string { return "review" }

func (Review) SendDefaults() posthaste.Message { return posthaste.Message{Queue: "shop"} }

func (s *shop) review(ctx context.Context, d posthaste.Delivery[Review]) error {
	var shipped, cancelled bool
	if err := s.pool.QueryRow(ctx, "select shipped, cancelled from shop_orders where id = $1", d.Payload.Order).Scan(&shipped, &cancelled); err != nil {
		return err
	}
	switch {
	case cancelled:
		return posthaste.Permanent(errors.New("the order was cancelled"))
	case !shipped:
		return posthaste.Snooze(200 * time.Millisecond)
	}
	s.done("asked for a review of order %d", d.Payload.Order)
	return nil
}

// Invoice is unique: inserting it again sends nothing.
type Invoice struct {
	Order int `json:"order"`
}

func (Invoice) Kind() string { return "invoice" }

func (Invoice) SendDefaults() posthaste.Message {
	return posthaste.Message{Queue: "shop", Unique: &posthaste.Unique{}}
}

func (s *shop) invoice(_ context.Context, d posthaste.Delivery[Invoice]) error {
	s.done("invoiced order %d", d.Payload.Order)
	return nil
}

// Report is sent every 15 minutes.
type Report struct{}

func (Report) Kind() string { return "report" }

func (s *shop) report(context.Context, posthaste.Delivery[Report]) error {
	s.done("reported")
	return nil
}

// shop is the state that the handlers share.
type shop struct {
	pool *pgxpool.Pool
	left atomic.Int32
	stop func()
}

// done prints a line. Five are enough here; a service would keep running.
func (s *shop) done(format string, values ...any) {
	fmt.Printf(format+"\n", values...)
	if s.left.Add(-1) == 0 {
		s.stop()
	}
}

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	check(err)
	defer pool.Close()
	s := &shop{pool: pool, stop: stop}
	s.left.Store(5)
	_, err = pool.Exec(ctx, "create table if not exists shop_orders (id int primary key, shipped boolean not null default false, cancelled boolean not null default false)")
	check(err)
	engine := postgres.New(pool) // `posthaste migrate up` has created the schema
	check(engine.CreateQueue(ctx, "shop", posthaste.QueueOptions{}))
	check(engine.CreateQueue(ctx, "shipping", posthaste.QueueOptions{}))

	w := worker.New(engine, worker.Config{Concurrency: 10})
	worker.Register(w, "shipping", s.ship, worker.WithOwnTransaction(), worker.WithRetryPolicy(worker.RetryPolicyFunc(nextShip)), worker.WithConcurrency(2))
	worker.Register(w, "shop", s.review)
	worker.Register(w, "shop", s.invoice)
	worker.Register(w, "shop", s.report)
	_, err = engine.PutSchedule(ctx, posthaste.Schedule{Name: "report", Spec: "every 15 minutes", Message: posthaste.Message{Queue: "shop", Payload: Report{}}})
	check(err)
	_, err = engine.RunSchedule(ctx, "report") // the first one at the start
	check(err)
	events := w.Events(worker.EventFilter{Kinds: []posthaste.EventKind{posthaste.EventSettled}, Outcomes: []posthaste.Outcome{posthaste.OutcomeDead}})
	go func() {
		for e := range events.C() {
			s.done("gave up a review: %s", e.Err)
		}
	}()

	check(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return order(ctx, tx) }))
	check(w.Run(ctx)) // until ctx ends
}

// order places two orders, one of them cancelled, with their messages.
func order(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, "insert into shop_orders (id, cancelled) values (7, false), (8, true)"); err != nil {
		return err
	}
	if _, err := postgres.In(tx).Send(ctx, posthaste.Message{Payload: Ship{Order: 7}}); err != nil {
		return err
	}
	for _, id := range []int{7, 8} {
		if _, err := postgres.In(tx).Send(ctx, posthaste.Message{Payload: Review{Order: id}, SendAt: time.Now().Add(100 * time.Millisecond), Priority: 1}); err != nil {
			return err
		}
	}
	for range 2 {
		sent, err := postgres.In(tx).Send(ctx, posthaste.Message{Payload: Invoice{Order: 7}})
		if err != nil {
			return err
		}
		fmt.Println("an invoice, duplicate:", sent[0].Duplicate)
	}
	return nil
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
