package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverQueue is River, used through its client for pgx.
type riverQueue struct{ inGo }

func (riverQueue) about() about {
	return about{name: "river", version: moduleVersion("github.com/riverqueue/river"), producers: 2, limit: 20_000}
}

func (riverQueue) rows(scenario string) []string {
	if scenario == idle {
		return []string{byDefault}
	}
	return usual(scenario)
}

func (riverQueue) install(ctx context.Context, o order) error {
	pool, err := pgxpool.New(ctx, o.URL)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.Default()})
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// riverArgs is a message, which River encodes and decodes itself.
type riverArgs struct{ fields }

// Kind implements [river.JobArgs].
func (riverArgs) Kind() string { return queue }

func (riverQueue) sender(ctx context.Context, o order) (sender, error) {
	pool, err := openPool(ctx, o.URL, o.Senders)
	if err != nil {
		return nil, err
	}
	config := &river.Config{Logger: slog.Default()}
	if o.Row == best {
		config.FetchCooldown = time.Millisecond // also how often an inserter notifies
	}
	c, err := river.NewClient(riverpgxv5.New(pool), config)
	return &riverSender{pool, c}, err
}

type riverSender struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

func (s *riverSender) batch(ctx context.Context, bodies []body) error {
	params := make([]river.InsertManyParams, len(bodies))
	for i, b := range bodies {
		params[i].Args = riverArgs{b.fields}
	}
	_, err := s.client.InsertManyFast(ctx, params)
	return err
}

func (s *riverSender) one(ctx context.Context, b body) error {
	_, err := s.client.Insert(ctx, riverArgs{b.fields}, nil)
	return err
}

func (s *riverSender) within(ctx context.Context, tx pgx.Tx, b body) error {
	_, err := s.client.InsertTx(ctx, tx, riverArgs{b.fields}, nil)
	return err
}

func (s *riverSender) close() { s.pool.Close() }

func (riverQueue) work(ctx context.Context, o order, t *tally, ready func()) error {
	pool, err := openPool(ctx, o.URL, 10)
	if err != nil {
		return err
	}
	defer pool.Close()
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[riverArgs]) error {
		t.decoded(job.Args.fields)
		return nil
	}))
	c, err := river.NewClient(riverpgxv5.New(pool), riverConfig(o, workers))
	if err != nil {
		return err
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	ready()
	<-ctx.Done()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return c.StopAndCancel(stopping)
}

func riverConfig(o order, workers *river.Workers) *river.Config {
	config := &river.Config{Logger: slog.Default(), Workers: workers}
	maxWorkers := 2000
	switch {
	case o.Scenario == latency || o.Scenario == idle:
		maxWorkers = 100
		if o.Row == best {
			config.FetchCooldown = time.Millisecond
		}
	case o.Scenario == flow:
		config.FetchCooldown, config.FetchPollInterval = time.Millisecond, 20*time.Millisecond
	default:
		config.FetchCooldown = time.Millisecond
	}
	config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: maxWorkers}}
	return config
}
