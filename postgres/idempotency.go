package postgres

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
)

// SendOnce implements [posthaste.Engine]. The messages and the key commit together. A
// concurrent request with the same key waits.
func (e *Engine) SendOnce(ctx context.Context, request posthaste.Idempotency, messages ...posthaste.Message) (sent []posthaste.Sent, replayed bool, err error) {
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
	var told []posthaste.Sent
	err = tx.QueryRow(ctx, "select ids, told from posthaste.idempotency_begin($1, $2, $3)", request.Scope, request.Key, request.Digest).Scan(&before, &told)
	if err != nil {
		return nil, false, readError(err)
	}
	if told != nil {
		return told, true, nil
	}
	if before != nil {
		sent = make([]posthaste.Sent, len(before))
		for i, id := range before {
			sent[i].ID = posthaste.MessageID(id)
		}
		return sent, true, nil
	}
	sent, err = e.session(conn).send(ctx, rows)
	if err != nil {
		return nil, false, readError(err) // nothing was committed
	}
	ids := make([]int64, len(sent))
	var notes *string
	for i := range sent {
		ids[i] = int64(sent[i].ID)
		if sent[i] != (posthaste.Sent{ID: sent[i].ID}) && notes == nil {
			text, err := json.Marshal(sent)
			if err != nil {
				return nil, false, err
			}
			notes = new(string(text))
		}
	}
	if _, err := tx.Exec(ctx, "select posthaste.idempotency_end($1, $2, $3, $4, $5, $6::text::jsonb)", request.Scope, request.Key, request.Digest, ids, request.Window.Seconds(), notes); err != nil {
		return nil, false, readError(err)
	}
	return sent, false, writeError(tx.Commit(ctx))
}
