package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// plainTable is not a queue. It measures transactions with only the business row, and with a
// second plain row instead of a message, as the reference for the cost of a transactional
// send.
type plainTable struct{ inGo }

func (plainTable) about() about {
	return about{name: "plain", version: "no queue", noWorker: true}
}

func (plainTable) rows(scenario string) []string {
	if scenario == transactional {
		return []string{plainInsert, twoInserts}
	}
	return nil
}

func (plainTable) install(ctx context.Context, o order) error {
	return execute(ctx, o.URL, "create table public.peers_second (id bigint generated always as identity primary key, body text not null)")
}

func (plainTable) sender(_ context.Context, o order) (sender, error) {
	return plainSender{o.Row == twoInserts}, nil
}

func (plainTable) work(ctx context.Context, _ order, _ *tally, ready func()) error {
	ready()
	<-ctx.Done()
	return nil
}

type plainSender struct{ second bool }

func (s plainSender) within(ctx context.Context, tx pgx.Tx, b body) error {
	if !s.second {
		return nil
	}
	_, err := tx.Exec(ctx, "insert into public.peers_second (body) values ($1)", string(b.json))
	return err
}

var errNoQueue = errors.New("a plain table has no messages to send")

func (plainSender) batch(context.Context, []body) error { return errNoQueue }

func (plainSender) one(context.Context, body) error { return errNoQueue }

func (plainSender) close() {}
