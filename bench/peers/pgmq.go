package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// pgmqPackage is the Python package whose file pgmqFile installs pgmq's schema.
const (
	pgmqPackage = "pgmq==1.1.4"
	pgmqFile    = "pgmq/sql/pgmq.sql"
	pgmqVersion = "1.13.0"
)

// pgmq is pgmq, used through its SQL functions.
type pgmq struct {
	inGo
	schema string // the text of pgmqFile
}

func (*pgmq) about() about {
	return about{name: "pgmq", version: pgmqVersion, producers: 2, limit: 20_000}
}

func (*pgmq) rows(scenario string) []string { return usual(scenario) }

func (p *pgmq) prepare(ctx context.Context, t *tools) (err error) {
	p.schema, err = t.fromWheel(ctx, pgmqPackage, pgmqFile)
	return err
}

func (p *pgmq) install(ctx context.Context, o order) error {
	// The script is written for CREATE EXTENSION, which creates the schema.
	statements := []string{"create schema if not exists pgmq", p.schema, fmt.Sprintf("select pgmq.create('%s')", o.Queue)}
	if o.Row == best {
		statements = append(statements, fmt.Sprintf("select pgmq.enable_notify_insert('%s', 0)", o.Queue))
	}
	return execute(ctx, o.URL, statements...)
}

func (*pgmq) sender(ctx context.Context, o order) (sender, error) {
	return newSQLSender(ctx, o, "select pgmq.send($1, $2::jsonb)", "select pgmq.send_batch($1, $2::jsonb[])")
}

const (
	pgmqPoll = "select msg_id, message from pgmq.read_with_poll($1, 30, $2)"
	pgmqRead = "select msg_id, message from pgmq.read($1, 30, $2)"
)

func (*pgmq) work(ctx context.Context, o order, t *tally, ready func()) error {
	loops, quantity := 2, 1000
	if o.Scenario == latency || o.Scenario == idle {
		loops, quantity = 1, 100
	}
	group, ctx := errgroup.WithContext(ctx)
	for range loops {
		group.Go(func() error {
			conn, err := pgx.Connect(ctx, o.URL)
			if err != nil {
				return err
			}
			defer conn.Close(context.WithoutCancel(ctx))
			if o.Row == best {
				return pgmqListen(ctx, conn, o.Queue, quantity, t, ready)
			}
			ready()
			for ctx.Err() == nil {
				if _, err := pgmqSome(ctx, conn, pgmqPoll, o.Queue, quantity, t); err != nil {
					return errors.Join(err, ctx.Err())
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// pgmqListen reads when a notification says that messages were inserted.
func pgmqListen(ctx context.Context, conn *pgx.Conn, queue string, quantity int, t *tally, ready func()) error {
	if _, err := conn.Exec(ctx, "listen "+pgx.Identifier{"pgmq.q_" + queue + ".INSERT"}.Sanitize()); err != nil {
		return err
	}
	ready()
	for {
		n, err := pgmqSome(ctx, conn, pgmqRead, queue, quantity, t)
		if err == nil && n == 0 {
			_, err = conn.WaitForNotification(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// pgmqSome handles and deletes the messages of one read.
func pgmqSome(ctx context.Context, conn *pgx.Conn, read, queue string, quantity int, t *tally) (int, error) {
	rows, err := conn.Query(ctx, read, queue, quantity)
	if err != nil {
		return 0, err
	}
	var ids []int64
	var id int64
	var message []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &message}, func() error {
		t.encoded(message)
		ids = append(ids, id)
		return nil
	})
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	_, err = conn.Exec(ctx, "select pgmq.delete($1::text, $2::bigint[])", queue, ids)
	return len(ids), err
}
