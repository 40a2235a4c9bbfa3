package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
)

// What the transactions of transactional do beside their message, and by what they send it.
const (
	rowAlone = "row alone"
	twoRows  = "row and payload into tables"
	bySQL    = "row and send, SQL"
	byIn     = "row and send, postgres.In"
	byEngine = "send alone, Engine.Send"
)

// transactional compares transactions that insert a row and send a message with
// transactions that insert the payload into a table instead, and with those that do
// neither. Messages of half of the ways are for queues that workers read, those of the
// other half for queues that nobody reads.
func transactional(ctx context.Context, r *run) (err error) {
	s, err := openSending(ctx, r, "transactional")
	if err == nil {
		err = s.transactions(ctx)
	}
	if err == nil {
		err = s.measure(ctx)
	}
	if s != nil {
		err = errors.Join(err, s.close())
	}
	return err
}

// transactions makes the table of the business rows and the ways.
func (s *sending) transactions(ctx context.Context) error {
	if _, err := s.plain.conns[0].Exec(ctx, "create table public.business (id bigint generated always as identity primary key, customer bigint not null, amount numeric not null)"); err != nil {
		return fmt.Errorf("the business table cannot be made: %w", err)
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
	row := &sendWay{SendingWay: SendingWay{Way: rowAlone}, once: s.within(func(context.Context, pgx.Tx) error { return nil })}
	payloads := &sendWay{SendingWay: SendingWay{Way: twoRows}, once: s.within(func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "plain", []byte(payload))
		return err
	})}
	s.ways = []*sendWay{row, payloads}
	for _, kind := range []string{attended, unattended} {
		s.ways = append(s.ways,
			&sendWay{SendingWay: SendingWay{Way: bySQL, Worker: kind}, once: s.within(func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "send", s.queue(kind), payload)
				return err
			})},
			&sendWay{SendingWay: SendingWay{Way: byIn, Worker: kind}, once: s.within(func(ctx context.Context, tx pgx.Tx) error {
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

// within is a transaction that inserts a business row and does something else.
func (s *sending) within(also func(context.Context, pgx.Tx) error) func(context.Context, int) error {
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
