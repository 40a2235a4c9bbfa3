package main

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/worker"
)

const posthasteName = "posthaste"

// posthasteMQ is Posthaste with default settings. Its worker has the defaults in every
// scenario.
type posthasteMQ struct{ inGo }

func (posthasteMQ) about() about {
	return about{name: posthasteName, version: "this tree", producers: 8, limit: 20_000}
}

func (posthasteMQ) rows(scenario string) []string {
	if scenario == single {
		return []string{own, client}
	}
	return []string{only}
}

func (posthasteMQ) install(ctx context.Context, o order) error {
	conn, err := postgres.Connect(ctx, o.URL)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := postgres.Migrate(ctx, conn, postgres.MigrateOptions{NoRoles: true}); err != nil {
		return err
	}
	engine, err := postgres.Open(ctx, o.URL)
	if err != nil {
		return err
	}
	defer engine.Close()
	return engine.CreateQueue(ctx, o.Queue, posthaste.QueueOptions{})
}

func (posthasteMQ) sender(ctx context.Context, o order) (sender, error) {
	connections := postgres.DefaultPoolSize
	if o.Row == own {
		connections = o.Senders
	}
	engine, err := postgres.Open(ctx, o.URL, postgres.WithPoolSize(connections))
	if err != nil {
		return nil, err
	}
	return &posthasteSender{engine, posthaste.NewClient(engine), o}, nil
}

type posthasteSender struct {
	engine *postgres.Engine
	client *posthaste.Client
	order  order
}

func (s *posthasteSender) message(b body) posthaste.Message {
	return posthaste.Message{Queue: s.order.Queue, Payload: b.json}
}

func (s *posthasteSender) batch(ctx context.Context, bodies []body) error {
	messages := make([]posthaste.Message, len(bodies))
	for i, b := range bodies {
		messages[i] = s.message(b)
	}
	_, err := s.client.Send(ctx, messages...)
	return err
}

func (s *posthasteSender) one(ctx context.Context, b body) error {
	if s.order.Row == own {
		_, err := s.engine.Send(ctx, s.message(b))
		return err
	}
	_, err := s.client.Send(ctx, s.message(b))
	return err
}

func (s *posthasteSender) within(ctx context.Context, tx pgx.Tx, b body) error {
	_, err := postgres.In(tx).Send(ctx, s.message(b))
	return err
}

func (s *posthasteSender) close() { s.engine.Close() }

func (posthasteMQ) work(ctx context.Context, o order, t *tally, ready func()) error {
	engine, err := postgres.Open(ctx, o.URL)
	if err != nil {
		return err
	}
	defer engine.Close()
	w := worker.New(engine, worker.Config{})
	worker.Handle(w, o.Queue, func(_ context.Context, d posthaste.Delivery[json.RawMessage]) error {
		t.encoded(d.Payload)
		return nil
	})
	go func() {
		select {
		case <-w.Started():
			ready()
		case <-ctx.Done():
		}
	}()
	return w.Run(ctx)
}
