package postgres

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/jsoncheck"
)

// Tx sends and acknowledges in a transaction that the caller owns. Messages are sent if it
// commits and not if it rolls back, and an acknowledgment takes effect together with the
// caller's writes. Like the transaction, it is not safe for concurrent use.
type Tx struct {
	tx transaction
}

// transaction has the operations that differ between [In] and [InSQL].
type transaction interface {
	send(ctx context.Context, rows []row) ([]posthaste.Sent, error)
	// ack acknowledges deliveries. options are those of posthaste.ack, as JSON.
	ack(ctx context.Context, ids []int64, options string) error
	checkpoint(ctx context.Context, id int64, value string) error
	// query calls scan for each row of a statement without parameters.
	query(ctx context.Context, statement string, scan func(scan func(into ...any) error) error) error
}

// In returns the Tx of a pgx transaction.
func In(tx pgx.Tx) Tx { return Tx{pgxTx{tx}} }

// Send stores the messages in the transaction and returns what became of each, in order. If one
// message is rejected, none is stored, and the transaction must be rolled back, as after any error of
// PostgreSQL.
func (t Tx) Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.Sent, error) {
	rows, err := encode(messages)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	sent, err := t.tx.send(ctx, rows)
	return sent, readError(err)
}

// Ack acknowledges deliveries in the transaction. The handler's writes and the acknowledgment
// either both commit or both do not, so that the writes happen exactly once. The error is
// [posthaste.CodeConflict] if the caller does not hold one of the deliveries any more; the
// transaction must then be rolled back. Ack only works for deliveries that are settled one by
// one: received ones, and those of handlers that were registered as settling in their own
// transaction. Results that the handler has passed to SetResult before are stored with it, if ctx
// is the handler's context or derived from that.
func (t Tx) Ack(ctx context.Context, deliveries ...posthaste.DeliveryID) error {
	if len(deliveries) == 0 {
		return nil
	}
	ids := make([]int64, len(deliveries))
	for i, d := range deliveries {
		ids[i] = int64(d)
	}
	options, err := ackOptions(ctx, deliveries)
	if err != nil {
		return err
	}
	return readError(t.tx.ack(ctx, ids, options))
}

// ackOptions returns the options of posthaste.ack: strict, and the results of the deliveries if
// there are any.
func ackOptions(ctx context.Context, deliveries []posthaste.DeliveryID) (string, error) {
	results, any := make([]json.RawMessage, len(deliveries)), false
	for i, d := range deliveries {
		if results[i] = posthaste.ResultOf(ctx, d); results[i] == nil {
			continue
		}
		any = true
		if err := jsoncheck.Check("result", results[i]); err != nil {
			return "", err
		}
	}
	if !any {
		return `{"strict": true}`, nil
	}
	body, err := json.Marshal(results) // null for those without one
	return `{"strict": true, "receipts": ` + string(body) + `}`, err
}

// Checkpoint stores a delivery's checkpoint in the transaction, as
// [posthaste.RawDelivery.Checkpoint] does by itself: the handler's writes and the checkpoint
// either both commit or both do not. The error is [posthaste.CodeConflict] if the caller does
// not hold the delivery any more; the transaction must then be rolled back. Until the
// transaction ends, nothing else ends the delivery. Checkpoint only works for the deliveries
// that Ack works for.
func (t Tx) Checkpoint(ctx context.Context, delivery posthaste.DeliveryID, cursor any) error {
	body, err := posthaste.CheckpointJSON(cursor)
	if err != nil {
		return err
	}
	if err := jsoncheck.Check("checkpoint", body); err != nil {
		return err
	}
	return readError(t.tx.checkpoint(ctx, int64(delivery), string(body)))
}

// Messages returns the messages that the transaction has sent so far, oldest first, with their
// queue, key, kind, reference, content type and payload. Duplicates, which were not stored, are
// not among them. It is for tests: it reads the whole ledger, and its user must own the schema.
func (t Tx) Messages(ctx context.Context) (sent []posthaste.MessageInfo, err error) {
	// Rows with a message_id are further attempts.
	err = t.tx.query(ctx, `select e.pos, q.name, coalesce(e.key, ''), coalesce(e.kind, ''), coalesce(e.reference, ''),
			coalesce(e.content_type, 'application/json'), e.payload
		from posthaste.entries e join posthaste.queue_settings q on q.id = e.queue_id
		where e.xid = pg_current_xact_id_if_assigned() and e.message_id is null order by e.pos`,
		func(scan func(into ...any) error) error {
			var m posthaste.MessageInfo
			err := scan((*int64)(&m.ID), &m.Queue, &m.Key, &m.Kind, &m.Reference, &m.ContentType, &m.Payload)
			sent = append(sent, m)
			return err
		})
	return sent, readError(err)
}

type pgxTx struct{ pgx.Tx }

func (t pgxTx) query(ctx context.Context, statement string, scan func(func(...any) error) error) error {
	rows, err := t.Query(ctx, statement)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (t pgxTx) send(ctx context.Context, rows []row) ([]posthaste.Sent, error) {
	conn := t.Conn()
	mode := conn.Config().DefaultQueryExecMode
	// A connection in one of these modes may go through a pooler that does not support
	// prepared statements.
	pooled := mode == pgx.QueryExecModeExec || mode == pgx.QueryExecModeSimpleProtocol
	return session{conn: conn, pooled: pooled}.send(ctx, rows)
}

func (t pgxTx) ack(ctx context.Context, ids []int64, options string) error {
	_, err := t.Exec(ctx, `select posthaste.ack($1::bigint[], $2::text)`, ids, options)
	return err
}

func (t pgxTx) checkpoint(ctx context.Context, id int64, value string) error {
	_, err := t.Exec(ctx, `select posthaste.checkpoint($1, $2::text::jsonb)`, id, value)
	return err
}
