// Command river is a small shop with its jobs in River. The program in the folder above is the same
// with Posthaste.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// Ship is a job that is inserted with its order, and completed with it.
type Ship struct {
	Order int `json:"order"`
}

func (Ship) Kind() string { return "ship" }

func (Ship) InsertOpts() river.InsertOpts { return river.InsertOpts{Queue: "shipping", MaxAttempts: 5} }

type shipper struct {
	river.WorkerDefaults[Ship]
	*shop
}

func (s *shipper) Work(ctx context.Context, job *river.Job[Ship]) error {
	if job.Attempt == 1 {
		return errors.New("the carrier is busy")
	}
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "update shop_orders set shipped = true where id = $1", job.Args.Order); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
	if err == nil {
		s.done("shipped order %d, attempt %d", job.Args.Order, job.Attempt)
	}
	return err
}

func (s *shipper) NextRetry(job *river.Job[Ship]) time.Time {
	return time.Now().Add(time.Duration(job.Attempt) * 100 * time.Millisecond)
}

func (s *shipper) Timeout(*river.Job[Ship]) time.Duration { return 10 * time.Second }

// Review asks for a review after the order was shipped.
type Review struct {
	Order int `json:"order"`
}

func (Review) Kind() string { return "review" }

type reviewer struct {
	river.WorkerDefaults[Review]
	*shop
}

func (r *reviewer) Work(ctx context.Context, job *river.Job[Review]) error {
	var shipped, cancelled bool
	if err := r.pool.QueryRow(ctx, "select shipped, cancelled from shop_orders where id = $1", job.Args.Order).Scan(&shipped, &cancelled); err != nil {
		return err
	}
	switch {
	case cancelled:
		return river.JobCancel(errors.New("the order was cancelled"))
	case !shipped:
		return river.JobSnooze(200 * time.Millisecond)
	}
	r.done("asked for a review of order %d", job.Args.Order)
	return nil
}

// Invoice is unique: inserting it again sends nothing.
type Invoice struct {
	Order int `json:"order"`
}

func (Invoice) Kind() string { return "invoice" }

func (Invoice) InsertOpts() river.InsertOpts {
	return river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}}
}

type invoicer struct {
	river.WorkerDefaults[Invoice]
	*shop
}

func (i *invoicer) Work(_ context.Context, job *river.Job[Invoice]) error {
	i.done("invoiced order %d", job.Args.Order)
	return nil
}

// Report is sent every 15 minutes.
type Report struct{}

func (Report) Kind() string { return "report" }

type reporter struct {
	river.WorkerDefaults[Report]
	*shop
}

func (r *reporter) Work(context.Context, *river.Job[Report]) error {
	r.done("reported")
	return nil
}

// shop is the state that the workers share.
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
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	check(err)
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	check(err)

	workers := river.NewWorkers()
	river.AddWorker(workers, &shipper{shop: s})
	river.AddWorker(workers, &reviewer{shop: s})
	river.AddWorker(workers, &invoicer{shop: s})
	river.AddWorker(workers, &reporter{shop: s})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 10}, "shipping": {MaxWorkers: 2}},
		Workers: workers,
		PeriodicJobs: []*river.PeriodicJob{river.NewPeriodicJob(river.PeriodicInterval(15*time.Minute),
			func() (river.JobArgs, *river.InsertOpts) { return Report{}, nil }, &river.PeriodicJobOpts{RunOnStart: true})},
	})
	check(err)
	events, unsubscribe := client.Subscribe(river.EventKindJobCancelled)
	defer unsubscribe()
	go func() {
		for e := range events {
			text := e.Job.Errors[len(e.Job.Errors)-1].Error
			s.done("gave up a %s: %s", e.Job.Kind, strings.TrimPrefix(text, "JobCancelError: "))
		}
	}()

	check(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return order(ctx, client, tx) }))
	check(client.Start(ctx)) // and stops when ctx ends
	<-client.Stopped()
}

// order places two orders, one of them cancelled, with their jobs.
func order(ctx context.Context, client *river.Client[pgx.Tx], tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, "insert into shop_orders (id, cancelled) values (7, false), (8, true)"); err != nil {
		return err
	}
	if _, err := client.InsertTx(ctx, tx, Ship{Order: 7}, nil); err != nil {
		return err
	}
	for _, id := range []int{7, 8} {
		if _, err := client.InsertTx(ctx, tx, Review{Order: id}, &river.InsertOpts{ScheduledAt: time.Now().Add(100 * time.Millisecond), Priority: 2}); err != nil {
			return err
		}
	}
	for range 2 {
		inserted, err := client.InsertTx(ctx, tx, Invoice{Order: 7}, nil)
		if err != nil {
			return err
		}
		fmt.Println("an invoice, duplicate:", inserted.UniqueSkippedAsDuplicate)
	}
	return nil
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
