// Command import imports a file of 1,000 rows. If an attempt fails, the next one continues after
// the last stored row.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/worker"
)

const (
	rows = 1000
	part = 100 // rows in one transaction
)

type file struct {
	Name string `json:"name"`
}

// position is the checkpoint: how many rows are stored.
type position struct {
	Row int `json:"row"`
}

type importer struct {
	pool *pgxpool.Pool
	done func()
}

func (i importer) handle(ctx context.Context, d posthaste.Delivery[file]) error {
	at, found, err := posthaste.Resume[position](d)
	if err != nil {
		return err
	}
	fmt.Printf("attempt %d begins at row %d, after a checkpoint: %t\n", d.Attempt, at.Row, found)
	d.Logger().Info("begun", "file", d.Payload.Name, "row", at.Row)
	for at.Row < rows {
		if at.Row == 700 && d.Attempt == 1 {
			return posthaste.RetryAfter(errors.New("the file server does not answer"), time.Millisecond)
		}
		// The rows and the checkpoint commit together, so that no row is stored twice.
		err := pgx.BeginFunc(ctx, i.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "insert into imported (message, row) select $1, generate_series($2::int, $3::int)", d.MessageID, at.Row+1, at.Row+part)
			if err != nil {
				return err
			}
			at.Row += part
			return postgres.In(tx).Checkpoint(ctx, d.ID, at)
		})
		if err != nil {
			return err // a conflict means that another worker handles it now
		}
		if err := d.Progress(ctx, float64(at.Row)/rows, fmt.Sprintf("%d of %d rows", at.Row, rows)); err != nil {
			return err
		}
	}
	defer i.done() // one file is enough here
	return d.SetResult(at)
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	check(err)
	_, err = pool.Exec(ctx, "create table if not exists imported (message bigint, row int)")
	check(err)
	engine := postgres.New(pool)
	check(engine.CreateQueue(ctx, "imports", posthaste.QueueOptions{Timeout: time.Hour, Retention: 24 * time.Hour}))
	sent, err := posthaste.NewClient(engine).Send(ctx, posthaste.Message{Queue: "imports", Payload: file{"customers.csv"}})
	check(err)

	w := worker.New(engine, worker.Config{})
	worker.Handle(w, "imports", importer{pool, stop}.handle, worker.WithOwnTransaction())
	check(w.Run(ctx))

	var stored, distinct int
	check(pool.QueryRow(context.Background(), "select count(*), count(distinct row) from imported where message = $1", sent[0].ID).Scan(&stored, &distinct))
	fmt.Println(stored, "rows stored, of which", distinct, "differ")
	message, err := engine.Message(context.Background(), sent[0].ID)
	check(err)
	for _, a := range message.Subscriptions[0].Attempts {
		fmt.Printf("attempt %d: %s at %.0f %%, %s, result %s\n", a.Attempt, a.Outcome, 100*a.Progress, a.ProgressText, a.Receipt)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
