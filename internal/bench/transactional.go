package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
)

// The ways of scenario transactional: the rows of a transaction, and how it sends.
const (
	rowAlone = "row alone"
	twoRows  = "row and payload into tables"
	bySQL    = "row and send, SQL"
	byIn     = "row and send, postgres.In"
	byEngine = "send alone, Engine.Send"
)

// transactional compares transactions that insert a row and send a message with transactions
// that insert the payload into a table instead, and with those that do neither. One half of the
// ways sends to queues with workers, the other half to queues without.
func transactional(ctx context.Context, r *run) (err error) {
	s, err := openSending(ctx, r, "transactional")
	if err == nil {
		err = transactions(ctx, s)
	}
	if err == nil {
		err = s.measure(ctx)
	}
	if s != nil {
		err = errors.Join(err, s.close())
	}
	return err
}

// transactions creates the table of the business rows, and sets the ways.
func transactions(ctx context.Context, s *sending) error {
	if _, err := s.plain.conns[0].Exec(ctx, "create table public.business (id bigint generated always as identity primary key, customer bigint not null, amount numeric not null)"); err != nil {
		return fmt.Errorf("the business table cannot be created: %w", err)
	}
	for _, conn := range s.plain.conns {
		for name, statement := range map[string]string{
			"business": "insert into public.business (customer, amount) values ($1, 12.50)",
			"send":     "select posthaste.send($1, $2)",
		} {
			if _, err := conn.Prepare(ctx, name, statement); err != nil {
				return fmt.Errorf("the statement %q cannot be prepared: %w", statement, err)
			}
		}
	}
	row := &sendWay{SendingWay: SendingWay{Way: rowAlone}, once: within(s, func(context.Context, pgx.Tx) error { return nil })}
	payloads := &sendWay{SendingWay: SendingWay{Way: twoRows}, once: within(s, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "plain", []byte(payload))
		return err
	})}
	s.ways = []*sendWay{row, payloads}
	for _, kind := range []string{attended, unattended} {
		s.ways = append(s.ways,
			&sendWay{SendingWay: SendingWay{Way: bySQL, Worker: kind}, once: within(s, func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "send", s.queue(kind), payload)
				return err
			})},
			&sendWay{SendingWay: SendingWay{Way: byIn, Worker: kind}, once: within(s, func(ctx context.Context, tx pgx.Tx) error {
				_, err := postgres.In(tx).Send(ctx, posthaste.Message{Queue: s.queue(kind), Payload: payload})
				return err
			})},
			s.sendsBy(s.engine, byEngine, kind))
	}
	for _, w := range s.ways {
		w.row, w.payloads = row, payloads
	}
	s.main = s.ways[2] // by SQL, with a worker
	return nil
}

// within returns a transaction that inserts a business row and calls also.
func within(s *sending, also func(context.Context, pgx.Tx) error) func(context.Context, int) error {
	return func(ctx context.Context, i int) error {
		tx, err := s.plain.conns[i].Begin(ctx)
		if err != nil {
			return err
		}
		if _, err = tx.Exec(ctx, "business", int64(i)); err == nil {
			err = also(ctx, tx)
		}
		if err != nil {
			return errors.Join(err, tx.Rollback(context.WithoutCancel(ctx)))
		}
		return tx.Commit(ctx)
	}
}
