package main

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// sqlSender sends with SQL functions, for products without a Go client.
type sqlSender struct {
	pool  *pgxpool.Pool
	queue string
	// sendOne takes the queue and a message in JSON, sendMany the queue and an array.
	sendOne, sendMany string
}

func newSQLSender(ctx context.Context, o order, sendOne, sendMany string) (sender, error) {
	pool, err := openPool(ctx, o.URL, o.Senders)
	if err != nil {
		return nil, err
	}
	return &sqlSender{pool, o.Queue, sendOne, sendMany}, nil
}

func (s *sqlSender) batch(ctx context.Context, bodies []body) error {
	_, err := s.pool.Exec(ctx, s.sendMany, s.queue, jsons(bodies))
	return err
}

func (s *sqlSender) one(ctx context.Context, b body) error {
	_, err := s.pool.Exec(ctx, s.sendOne, s.queue, string(b.json))
	return err
}

func (s *sqlSender) within(ctx context.Context, tx pgx.Tx, b body) error {
	_, err := tx.Exec(ctx, s.sendOne, s.queue, string(b.json))
	return err
}

func (s *sqlSender) close() { s.pool.Close() }
