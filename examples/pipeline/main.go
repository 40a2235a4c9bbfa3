// Command pipeline sends notifications through RabbitMQ when they are due:
//
//	notifications ─ due ─▶ chunks of ten ─▶ RabbitMQ ─▶ sending ─▶ handlers, each behind an inbox ─▶ the log of sent notifications
//
// Everything except the handler is configuration. See README.md in this directory.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/rabbitmq"
	"github.com/posthaste-mq/posthaste/codec/msgpack"
	"github.com/posthaste-mq/posthaste/inbox"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/source"
	"github.com/posthaste-mq/posthaste/worker"
)

const (
	notifications = "notifications" // notifications to send, each with its time
	sending       = "sending"       // notifications that came through the broker
)

type notification struct {
	To   string `json:"to"`
	Text string `json:"text"`
}

// chunks configures the chunks in which notifications are transferred. Both ends use it.
var chunks = relay.Chunks{Size: 10, Codec: msgpack.Codec}

func main() {
	role := flag.String("role", "demo", "demo, plan, publish or consume")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	engine, err := postgres.Open(ctx, os.Getenv("DATABASE_URL"))
	check(err)
	defer engine.Close()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL")) // the application's database
	check(err)
	defer pool.Close()
	broker := os.Getenv("AMQP_URL")
	check(prepare(ctx, engine, pool, broker))
	switch *role {
	case "plan":
		check(plan(ctx, engine, time.Now().Add(time.Minute)))
	case "publish":
		check(publish(ctx, engine, broker))
	case "consume":
		check(consume(ctx, engine, pool, broker, nil))
	default:
		check(demo(ctx, engine, pool, broker))
	}
}

// prepare creates the inbox, both queues and the broker's queue.
func prepare(ctx context.Context, engine posthaste.Store, pool *pgxpool.Pool, broker string) error {
	if _, err := pool.Exec(ctx, inbox.Schema()); err != nil {
		return err
	}
	for queue, o := range map[string]posthaste.QueueOptions{
		notifications: {},
		// Ten attempts for each message. Settled messages can be found for 90 days.
		sending: {MaxAttempts: 10, Retention: 90 * 24 * time.Hour, RetainPayload: true},
	} {
		if err := engine.CreateQueue(ctx, queue, o); err != nil && posthaste.CodeOf(err) != posthaste.CodeConflict {
			return err
		}
	}
	conn, err := amqp.Dial(broker)
	if err != nil {
		return errors.New("RabbitMQ cannot be reached: check AMQP_URL")
	}
	defer conn.Close()
	channel, err := conn.Channel()
	if err != nil {
		return err
	}
	_, err = channel.QueueDeclare(notifications, true, false, false, false, nil)
	return err
}

// plan is the application's part. An application usually does this in its own transaction.
func plan(ctx context.Context, engine posthaste.Store, at time.Time) error {
	var due []posthaste.Message
	for i := range 25 {
		due = append(due, posthaste.Message{Queue: notifications, SendAt: at, Reference: fmt.Sprint("appointment-", i),
			Payload: notification{fmt.Sprintf("+4930%07d", i), "Your appointment is tomorrow at nine."}})
	}
	_, err := posthaste.NewClient(engine).Send(ctx, due...)
	return err
}

// publish relays due notifications to the broker, ten in one message, with confirms.
func publish(ctx context.Context, engine posthaste.Store, broker string) error {
	to, err := rabbitmq.NewSink(rabbitmq.SinkConfig{URL: rabbitmq.URL(broker), RoutingKey: notifications})
	if err != nil {
		return err
	}
	defer to.Close()
	w := worker.New(engine, worker.Config{})
	worker.HandleSink(w, notifications, chunks.Sink(to), worker.WithBatchSize(relay.DefaultBatch))
	return w.Run(ctx)
}

// consume splits the chunks and handles each notification once: its id and the changes that
// the handler makes in tx commit together. Run any number of consumers.
func consume(ctx context.Context, engine posthaste.Store, pool *pgxpool.Pool, broker string, sent func()) error {
	from, err := rabbitmq.NewSource(engine, rabbitmq.SourceConfig{URL: rabbitmq.URL(broker), FromQueue: notifications,
		Config: source.Config{Queue: sending, Unpack: chunks.Unpack}})
	if err != nil {
		return err
	}
	w := worker.New(engine, worker.Config{})
	worker.HandleRaw(w, sending, inbox.Handler(pool.Begin, "notifier", func(_ context.Context, _ pgx.Tx, d posthaste.RawDelivery) error {
		var n notification
		if err := json.Unmarshal(d.Payload, &n); err != nil {
			return posthaste.Permanent(err)
		}
		fmt.Printf("%s: %s\n", n.To, n.Text) // call your provider's API here; an error causes a retry
		if sent != nil {
			sent()
		}
		return nil
	}), worker.WithConcurrency(int(pool.Config().MaxConns))) // each handler has its own transaction
	var beside sync.WaitGroup
	var failed error
	beside.Go(func() { failed = from.Run(ctx) })
	beside.Go(func() { inbox.Forget(ctx, pool, nil) })
	err = w.Run(ctx)
	beside.Wait()
	return errors.Join(err, failed)
}

// demo runs all parts in one process until 25 notifications are sent.
func demo(ctx context.Context, engine posthaste.Store, pool *pgxpool.Pool, broker string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if err := plan(ctx, engine, time.Now().Add(time.Second)); err != nil {
		return err
	}
	var left atomic.Int32
	left.Store(25)
	sent := func() {
		if left.Add(-1) == 0 {
			stop()
		}
	}
	failed := make(chan error, 1)
	go func() { failed <- publish(ctx, engine, broker) }()
	return errors.Join(consume(ctx, engine, pool, broker, sent), <-failed)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
