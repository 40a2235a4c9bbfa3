package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
)

// SendOnce implements [posthaste.Engine]. The messages and the key commit together. A
// concurrent request with the same key waits.
func (e *Engine) SendOnce(ctx context.Context, request posthaste.Idempotency, messages ...posthaste.Message) (ids []posthaste.MessageID, replayed bool, err error) {
	if err := request.Check(); err != nil {
		return nil, false, err
	}
	rows, err := encode(messages)
	if err != nil {
		return nil, false, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	conn, err := e.pool.Acquire(ctx)
	if err != nil {
		return nil, false, readError(err)
	}
	defer conn.Release()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return nil, false, readError(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	var before []int64
	err = tx.QueryRow(ctx, "select posthaste.idempotency_begin($1, $2, $3)", request.Scope, request.Key, request.Digest).Scan(&before)
	if err != nil {
		return nil, false, readError(err)
	}
	if before != nil {
		ids = make([]posthaste.MessageID, len(before))
		for i, id := range before {
			ids[i] = posthaste.MessageID(id)
		}
		return ids, true, nil
	}
	ids, err = e.session(conn).send(ctx, rows)
	if err != nil {
		return nil, false, readError(err) // nothing was committed
	}
	sent := make([]int64, len(ids))
	for i, id := range ids {
		sent[i] = int64(id)
	}
	if _, err := tx.Exec(ctx, "select posthaste.idempotency_end($1, $2, $3, $4, $5)", request.Scope, request.Key, request.Digest, sent, request.Window.Seconds()); err != nil {
		return nil, false, readError(err)
	}
	return ids, false, writeError(tx.Commit(ctx))
}
