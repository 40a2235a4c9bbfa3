//go:build unix

// Excerpts show one call, and leave out what a program does with its results.
//lint:file-ignore SA4006 errors are not examined in excerpts

package documents_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/rabbitmq"
	"github.com/posthaste-mq/posthaste/codec/msgpack"
	"github.com/posthaste-mq/posthaste/inbox"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/posthastetest"
	"github.com/posthaste-mq/posthaste/source"
	"github.com/posthaste-mq/posthaste/worker"
)

// The guides show parts of the functions of this file, so that they compile. Nothing runs them:
// most need services of the reader. TestExcerptsAreInTheirFiles compares them.
var _ = []any{
	fragmentHandler, fragmentCancelled, fragmentExactlyOnce, fragmentBatch, fragmentKinds, fragmentCheckpoint, fragmentTransaction, fragmentCodec,
	fragmentUnique, fragmentInbox, fragmentRedisInbox, fragmentSource, fragmentUnpack, fragmentSentIn, fragmentDatabase,
}

// What the reader's program has.
type (
	Order struct{}
	order struct{ Number int }
	Email struct{}
	SMS   struct{}

	Notification struct{}
	position     struct{ Row int }
	indexed      struct{ Name string }
)

func (Email) Kind() string { return "email" }
func (SMS) Kind() string   { return "sms" }

var (
	pool   *pgxpool.Pool
	client *posthaste.Client
	engine *postgres.Engine
)

func ship(context.Context, Order) error                              { return nil }
func deliver(context.Context, Email) error                           { return nil }
func text(context.Context, SMS) error                                { return nil }
func undo()                                                          {}
func placeOrder(context.Context, pgx.Tx, int) error                  { return nil }
func insertAll(context.Context, []posthaste.Delivery[Order]) []error { return nil }

func fragmentHandler(ctx context.Context) error {
	w := worker.New(engine, worker.Config{})
	worker.Handle(w, "orders", func(ctx context.Context, d posthaste.Delivery[Order]) error {
		return ship(ctx, d.Payload) // nil acknowledges the message, an error retries it
	})
	err := w.Run(ctx) // until ctx ends
	return err
}

func fragmentCancelled(ctx context.Context) {
	if errors.Is(context.Cause(ctx), posthaste.ErrCancelled) {
		undo()
	}
}

func fragmentExactlyOnce(w *worker.Worker) {
	worker.Handle(w, "orders", func(ctx context.Context, d posthaste.Delivery[order]) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "insert into shipments …", d.Payload.Number); err != nil {
				return err
			}
			return postgres.In(tx).Ack(ctx, d.ID) // fails if the message was redelivered meanwhile
		})
	}, worker.WithOwnTransaction())
}

func fragmentBatch(w *worker.Worker) {
	worker.HandleBatch(w, "orders", func(ctx context.Context, batch []posthaste.Delivery[Order]) []error {
		return insertAll(ctx, batch) // an error or nil for each message; a nil slice acknowledges all
	}, worker.WithBatchSize(500))
}

func fragmentKinds(w *worker.Worker) {
	worker.Register(w, "notices", func(ctx context.Context, d posthaste.Delivery[Email]) error { return deliver(ctx, d.Payload) })
	worker.Register(w, "notices", func(ctx context.Context, d posthaste.Delivery[SMS]) error { return text(ctx, d.Payload) })
}

func fragmentCheckpoint(ctx context.Context, d posthaste.Delivery[Order]) error {
	at, _, err := posthaste.Resume[position](d) // the newest checkpoint of earlier attempts
	// … process rows from at.Row on …
	err = d.Checkpoint(ctx, position{Row: 700})
	_ = at
	return err
}

func fragmentTransaction(ctx context.Context, db *sql.DB, order Order) error {
	tx, err := db.BeginTx(ctx, nil) // package database/sql
	// … your own statements with tx …
	_, err = postgres.InSQL(tx).Send(ctx, posthaste.Message{Queue: "orders", Payload: order})
	err = tx.Commit()
	return err
}

func fragmentCodec(ctx context.Context, order Order) *worker.Worker {
	client.Send(ctx, posthaste.Message{Queue: "orders", Payload: order, Codec: msgpack.Codec})

	w := worker.New(engine, worker.Config{Codecs: []posthaste.Codec{msgpack.Codec}})
	return w
}

func fragmentUnique(ctx context.Context, index indexed) error {
	sent, err := client.Send(ctx, posthaste.Message{
		Queue: "indexing", Payload: index, Unique: &posthaste.Unique{Key: index.Name},
	})
	// sent[0].Duplicate, sent[0].ID, sent[0].State
	_ = sent
	return err
}

func fragmentInbox() any {
	handler := inbox.Handler(pool.Begin, "mailer", func(ctx context.Context, tx pgx.Tx, d posthaste.RawDelivery) error {
		_, err := tx.Exec(ctx, "insert into mails_sent (message) values ($1)", inbox.ID(d))
		return err
	})
	return handler
}

func fragmentRedisInbox(ctx context.Context, client redis.UniversalClient, id string, mail Email, send func(context.Context, Email) error) (bool, error) {
	once, err := inbox.NewRedis(client, inbox.RedisConfig{Consumer: "mailer", Window: 24 * time.Hour})
	ran, err := once.Do(ctx, id, func(ctx context.Context) error { return send(ctx, mail) })
	return ran, err
}

func fragmentSource(ctx context.Context) error {
	orders, err := rabbitmq.NewSource(engine, rabbitmq.SourceConfig{
		Config:    source.Config{Queue: "orders"},
		URL:       "amqp://guest:guest@localhost/",
		FromQueue: "shop.orders",
	})
	err = orders.Check(ctx) // the login, both queues, the certificate
	err = orders.Run(ctx)   // until ctx ends
	return err
}

func fragmentUnpack() source.Config {
	return source.Config{
		Unpack: func(ctx context.Context, m posthaste.Message) ([]posthaste.Message, error) {
			var chunk []Notification
			if err := json.Unmarshal(m.Payload.([]byte), &chunk); err != nil {
				return nil, err
			}
			all := make([]posthaste.Message, len(chunk))
			for i, n := range chunk {
				all[i] = posthaste.Message{Payload: n, Headers: m.Headers}
			}
			return all, nil
		},
	}
}

func fragmentSentIn(t *testing.T) {
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if err := placeOrder(t.Context(), tx, 7); err != nil {
		t.Fatal(err)
	}
	if sent := posthastetest.SentIn[order](t, postgres.In(tx)); len(sent) != 1 || sent[0].Number != 7 {
		t.Errorf("it sent %v", sent)
	}
}

func fragmentDatabase(t *testing.T) {
	engine, err := postgres.Open(t.Context(), posthastetest.Database(t, os.Getenv("TEST_DATABASE_URL")))
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
}
