package main

import (
	"context"
	"time"

	mill "github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// watermill is Watermill's SQL publisher and subscriber on pgx, with its default schema.
type watermill struct{ inGo }

func (watermill) about() about {
	return about{name: "watermill-sql", version: moduleVersion("github.com/ThreeDotsLabs/watermill-sql/v4"), producers: 2, limit: 20_000}
}

func (watermill) rows(scenario string) []string { return usual(scenario) }

// subscribe creates the tables. Only a subscriber creates both.
func (watermill) subscribe(pool *pgxpool.Pool, o order) (*watermillsql.Subscriber, error) {
	schema := watermillsql.DefaultPostgreSQLSchema{}
	config := watermillsql.SubscriberConfig{ConsumerGroup: "bench", InitializeSchema: true,
		OffsetsAdapter: watermillsql.DefaultPostgreSQLOffsetsAdapter{}}
	if o.Scenario != latency && o.Scenario != idle {
		schema.SubscribeBatchSize = 1000
	}
	if o.Row != byDefault {
		config.PollInterval = 10 * time.Millisecond
	}
	config.SchemaAdapter = schema
	return watermillsql.NewSubscriber(watermillsql.BeginnerFromPgx(pool), config, mill.NopLogger{})
}

func (w watermill) install(ctx context.Context, o order) error {
	pool, err := pgxpool.New(ctx, o.URL)
	if err != nil {
		return err
	}
	defer pool.Close()
	s, err := w.subscribe(pool, o)
	if err != nil {
		return err
	}
	return s.SubscribeInitialize(o.Queue)
}

func publisher(on watermillsql.ContextExecutor) (*watermillsql.Publisher, error) {
	return watermillsql.NewPublisher(on, watermillsql.PublisherConfig{SchemaAdapter: watermillsql.DefaultPostgreSQLSchema{}}, mill.NopLogger{})
}

func (watermill) sender(ctx context.Context, o order) (sender, error) {
	pool, err := openPool(ctx, o.URL, o.Senders)
	if err != nil {
		return nil, err
	}
	p, err := publisher(watermillsql.BeginnerFromPgx(pool))
	return &watermillSender{pool, p, o.Queue}, err
}

type watermillSender struct {
	pool      *pgxpool.Pool
	publisher *watermillsql.Publisher
	topic     string
}

func (s *watermillSender) batch(_ context.Context, bodies []body) error {
	messages := make([]*message.Message, len(bodies))
	for i, b := range bodies {
		messages[i] = message.NewMessage(mill.NewUUID(), message.Payload(b.json))
	}
	return s.publisher.Publish(s.topic, messages...)
}

func (s *watermillSender) one(ctx context.Context, b body) error {
	return s.batch(ctx, []body{b})
}

func (s *watermillSender) within(_ context.Context, tx pgx.Tx, b body) error {
	p, err := publisher(watermillsql.TxFromPgx(tx))
	if err != nil {
		return err
	}
	return p.Publish(s.topic, message.NewMessage(mill.NewUUID(), message.Payload(b.json)))
}

func (s *watermillSender) close() { s.pool.Close() }

func (w watermill) work(ctx context.Context, o order, t *tally, ready func()) error {
	pool, err := openPool(ctx, o.URL, 10)
	if err != nil {
		return err
	}
	defer pool.Close()
	s, err := w.subscribe(pool, o)
	if err != nil {
		return err
	}
	messages, err := s.Subscribe(ctx, o.Queue)
	if err != nil {
		return err
	}
	ready()
	for m := range messages {
		t.encoded(m.Payload)
		m.Ack()
	}
	return s.Close()
}
