package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste"
)

// executor is what statements run on: a pool, or a transaction.
type executor interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

var _ posthaste.Transactor = (*Engine)(nil)

// Transaction implements [posthaste.Transactor]. The transaction is READ COMMITTED, as some
// changes of queues need it. Its locks are those of all changes together: keep it short.
func (e *Engine) Transaction(ctx context.Context, do func(posthaste.Declarable) error) error {
	tx, err := e.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return readError(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit it does nothing
	if err := do(&Engine{pool: e.pool, db: tx, polling: e.polling, log: e.log, environment: e.environment}); err != nil {
		return err
	}
	return writeError(tx.Commit(ctx))
}
