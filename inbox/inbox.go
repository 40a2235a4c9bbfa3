// Package inbox gives messages that come twice their effect once. Brokers and
// queues deliver at least once: a confirm is lost, a consumer dies before its ack,
// and the message comes again. A consumer that remembers the ids of what it has
// handled does not act on it a second time.
//
// There are two stores. On PostgreSQL ([Remember], [Handler]) the id is remembered in
// the transaction of the effect: both commit or neither does, so the effect is there
// exactly once. On Redis ([Redis]) the id is reserved before the effect and confirmed
// after it: two consumers never run at the same time for the same id, and what was
// confirmed never runs again; a consumer that dies between its effect and the confirm
// leaves it to be done again once its reservation has expired.
//
// While the store is down nothing is handled: calls return an error, by which the
// message comes again, and in a handler that is no attempt. The package needs nothing else of Posthaste, neither its
// ledger nor its workers; docs/inbox.md tells how it is used from SQL alone.
package inbox

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"strconv"

	posthaste "github.com/posthaste-mq/posthaste"
)

//go:embed schema.sql
var schema string

// Schema returns the statements that install the inbox in a PostgreSQL database, in
// the schema posthaste_inbox. Run them in one piece and without arguments, such as by
// pgx's Exec; running them again changes nothing.
func Schema() string { return schema }

// Row is a row of a driver: pgx.Row and *sql.Row are.
type Row interface {
	Scan(dest ...any) error
}

// Remember notes in a transaction that a consumer handles a message, and says whether
// it is the first to do so. If fresh is false the effect is there already: leave it out
// and acknowledge the message. Where another transaction is about to handle the same
// message, Remember waits for its end. tx is a transaction of pgx, of isolation read
// committed; id is at most 2,000 bytes, for it is in an index.
func Remember[R Row](ctx context.Context, tx interface {
	QueryRow(ctx context.Context, sql string, args ...any) R
}, consumer, id string) (fresh bool, err error) {
	return remembered(tx.QueryRow(ctx, remember, consumer, id))
}

// RememberSQL is [Remember] in a transaction of database/sql.
func RememberSQL(ctx context.Context, tx *sql.Tx, consumer, id string) (fresh bool, err error) {
	return remembered(tx.QueryRowContext(ctx, remember, consumer, id))
}

const remember = "select posthaste_inbox.remember($1, $2)"

func remembered(row Row) (fresh bool, err error) {
	if err := row.Scan(&fresh); err != nil {
		return false, fmt.Errorf("the inbox cannot be asked: %w", err)
	}
	return fresh, nil
}

// Tx is a transaction of pgx.
type Tx[R Row] interface {
	QueryRow(ctx context.Context, sql string, args ...any) R
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// Handler makes a handler that runs h once for each message: in a transaction that
// begin starts and that is committed when h returns nil, together with the message's
// id. A message that was handled before is acknowledged without h. begin is that of a
// *pgxpool.Pool; consumer tells the readers of the same message apart. While the database
// cannot be reached messages are snoozed, and come again some seconds later under the same
// attempt; the log (slog's default) says why twice a minute.
func Handler[R Row, T Tx[R]](begin func(ctx context.Context) (T, error), consumer string, h func(ctx context.Context, tx T, d posthaste.RawDelivery) error) posthaste.Handler {
	var store away
	unasked := func(err error) error {
		if postgresAway(err) {
			err = store.rest(err)
		}
		return err
	}
	return func(ctx context.Context, d posthaste.RawDelivery) (err error) {
		tx, err := begin(ctx)
		if err != nil {
			return unasked(fmt.Errorf("the inbox cannot be reached, so nothing is handled: %w", err))
		}
		defer func() {
			// After a commit it does nothing. A panic goes on, and leaves nothing behind.
			err = errors.Join(err, rolledBack(tx.Rollback(context.WithoutCancel(ctx)), err))
		}()
		fresh, err := Remember[R](ctx, tx, consumer, ID(d))
		if err != nil {
			return unasked(err)
		}
		if !fresh {
			return nil
		}
		if err := h(ctx, tx, d); err != nil {
			return err
		}
		return tx.Commit(ctx)
	}
}

// rolledBack is an error of rolling back, where there is no other: after a commit
// drivers say that the transaction is closed, which is no error.
func rolledBack(err, other error) error {
	if err == nil || other == nil {
		return nil
	}
	return err
}

// ID is by what a delivery is known again: the header [posthaste.HeaderMessageID] if it
// has one, and else its message id.
func ID(d posthaste.RawDelivery) string {
	if id := d.Headers[posthaste.HeaderMessageID]; id != "" {
		return id
	}
	return strconv.FormatInt(int64(d.MessageID), 10)
}
