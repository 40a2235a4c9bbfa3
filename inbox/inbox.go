// Package inbox makes consumers idempotent. Brokers and queues deliver at least once: a
// confirm is lost or a consumer crashes before its ack, and the message is redelivered. A
// consumer that remembers the ids of handled messages does not handle one twice.
//
// There are two stores. On PostgreSQL ([Remember], [Handler]) the id is stored in the
// transaction of the effect: both commit or neither does, so the effect happens exactly once.
// On Redis ([Redis]) the id is reserved before the effect and confirmed after it. Two
// consumers never run at the same time for the same id, and a confirmed message never runs
// again. If a consumer crashes between its effect and the confirm, the message runs again when
// its reservation expires.
//
// While the store is down, no message is handled: calls return an error, so that the message
// is redelivered. In a handler this counts no attempt. The package does not need Posthaste's
// queues or workers. docs/guides/inbox.md describes its use from SQL alone.
package inbox

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"strconv"

	"github.com/posthaste-mq/posthaste"
)

//go:embed schema.sql
var schema string

// Schema returns the statements that install the inbox in a PostgreSQL database, in the schema
// posthaste_inbox. Run them as one string and without arguments, for example with pgx's Exec.
// Running them again changes nothing.
func Schema() string { return schema }

// Row is a driver's row, such as pgx.Row or *sql.Row.
type Row interface {
	Scan(dest ...any) error
}

// Remember records in a transaction that a consumer handles a message, and reports whether
// this is the first time. If fresh is false, the effect already exists: skip it and
// acknowledge the message. If another transaction is handling the same message, Remember waits
// until it ends. tx is a pgx transaction with isolation level read committed. The id is at
// most 2,000 bytes, because it is stored in an index.
func Remember[R Row](ctx context.Context, tx interface {
	QueryRow(ctx context.Context, sql string, args ...any) R
}, consumer, id string) (fresh bool, err error) {
	return remembered(tx.QueryRow(ctx, remember, consumer, id))
}

// RememberSQL is [Remember] for a database/sql transaction.
func RememberSQL(ctx context.Context, tx *sql.Tx, consumer, id string) (fresh bool, err error) {
	return remembered(tx.QueryRowContext(ctx, remember, consumer, id))
}

const remember = "select posthaste_inbox.remember($1, $2)"

func remembered(row Row) (fresh bool, err error) {
	if err := row.Scan(&fresh); err != nil {
		return false, fmt.Errorf("the inbox cannot be read: %w", err)
	}
	return fresh, nil
}

// Tx is a pgx transaction.
type Tx[R Row] interface {
	QueryRow(ctx context.Context, sql string, args ...any) R
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// Handler returns a handler that runs h once for each message, in a transaction that begin
// starts. The transaction commits the message's id together with the changes of h, if h
// returns nil. A message that was handled before is acknowledged without running h. begin is
// the method of a *pgxpool.Pool. consumer distinguishes several consumers of the same message.
// While the database cannot be reached, messages are snoozed: they are redelivered a few
// seconds later under the same attempt. The log (slog's default) reports the reason twice a
// minute.
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
			return unasked(fmt.Errorf("the inbox cannot be reached, and the message was not handled: %w", err))
		}
		defer func() {
			// After a commit the rollback does nothing. After a panic it removes the changes.
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

// rolledBack returns the error of a rollback, if there is no other error. After a commit,
// drivers report that the transaction is closed; that is not an error here.
func rolledBack(err, other error) error {
	if err == nil || other == nil {
		return nil
	}
	return err
}

// ID returns the id that identifies a redelivered message: the header
// [posthaste.HeaderMessageID] if present, and otherwise the message id.
func ID(d posthaste.RawDelivery) string {
	if id := d.Headers[posthaste.HeaderMessageID]; id != "" {
		return id
	}
	return strconv.FormatInt(int64(d.MessageID), 10)
}
