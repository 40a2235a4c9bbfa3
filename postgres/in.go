package postgres

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

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
	ack(ctx context.Context, ids []int64) error
	checkpoint(ctx context.Context, id int64, value string) error
}

// In returns the Tx of a pgx transaction.
func In(tx pgx.Tx) Tx { return Tx{pgxTx{tx}} }

// InSQL returns the Tx of a database/sql transaction with any driver.
func InSQL(tx *sql.Tx) Tx { return Tx{sqlTx{tx}} }

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
// transaction.
func (t Tx) Ack(ctx context.Context, deliveries ...posthaste.DeliveryID) error {
	if len(deliveries) == 0 {
		return nil
	}
	ids := make([]int64, len(deliveries))
	for i, d := range deliveries {
		ids[i] = int64(d)
	}
	return readError(t.tx.ack(ctx, ids))
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

type pgxTx struct{ pgx.Tx }

func (t pgxTx) send(ctx context.Context, rows []row) ([]posthaste.Sent, error) {
	conn := t.Conn()
	mode := conn.Config().DefaultQueryExecMode
	// A connection in one of these modes may go through a pooler that does not support
	// prepared statements.
	pooled := mode == pgx.QueryExecModeExec || mode == pgx.QueryExecModeSimpleProtocol
	return session{conn: conn, pooled: pooled}.send(ctx, rows)
}

func (t pgxTx) ack(ctx context.Context, ids []int64) error {
	_, err := t.Exec(ctx, `select posthaste.ack($1::bigint[], '{"strict": true}')`, ids)
	return err
}

func (t pgxTx) checkpoint(ctx context.Context, id int64, value string) error {
	_, err := t.Exec(ctx, `select posthaste.checkpoint($1, $2::text::jsonb)`, id, value)
	return err
}

type sqlTx struct{ *sql.Tx }

// send passes arrays as text, which all drivers support.
func (t sqlTx) send(ctx context.Context, rows []row) ([]posthaste.Sent, error) {
	var sent []posthaste.Sent
	for len(rows) > 0 {
		part := rows[:firstPart(rows)]
		rows = rows[len(part):]
		found, err := t.QueryContext(ctx, sendSQL(told(part)), textParams(part, told(part))...)
		if err != nil {
			return nil, err
		}
		for found.Next() {
			var one posthaste.Sent
			if err := found.Scan((*int64)(&one.ID), &one.Duplicate, &one.Replaced, (*string)(&one.State)); err != nil {
				_ = found.Close()
				return nil, err
			}
			sent = append(sent, one)
		}
		if err := found.Err(); err != nil {
			return nil, err
		}
		if err := found.Close(); err != nil {
			return nil, err
		}
	}
	return sent, nil
}

// sendSQL returns the statement that sends. Only told, which costs more, tells of duplicates.
func sendSQL(told bool) string {
	const first = `$1::text::text[], $2::text::bytea[], $3::text::text[], $4::text::text[], $5::text::text[],
		$6::text::jsonb[], $7::text::text[], $8::text::jsonb[], $9::text::float8[], $10::text::timestamptz[], $11::text::text[], $12::boolean,
		$13::text::smallint[], $14::text::text[], $15::text::float8[]`
	if told {
		return "select id, duplicate, replaced, coalesce(state, '') from posthaste.send_told(" + first + ", $16::text::jsonb[])"
	}
	return "select unnest(posthaste.send_rows(" + first + ")), false, false, ''"
}

func (t sqlTx) ack(ctx context.Context, ids []int64) error {
	var list textArray
	for _, id := range ids {
		list.add(fmt.Sprint(id))
	}
	_, err := t.ExecContext(ctx, `select posthaste.ack($1::text::bigint[], '{"strict": true}')`, list.text())
	return err
}

func (t sqlTx) checkpoint(ctx context.Context, id int64, value string) error {
	_, err := t.ExecContext(ctx, `select posthaste.checkpoint($1::text::bigint, $2::text::jsonb)`, fmt.Sprint(id), value)
	return err
}

// textParams returns the parameters of posthaste.send_rows, or of posthaste.send_told, as array
// literals.
func textParams(rows []row, told bool) []any {
	var columns [len(sendTypes)]textArray
	wake := false
	for i := range rows {
		r := &rows[i]
		wake = wake || !r.NoWake
		for c := range columns {
			columns[c].addOptional(r.text(c))
		}
	}
	params := make([]any, 0, len(columns)+1)
	for c := range columns {
		if c == plainColumns {
			params = append(params, wake)
		}
		if c != sendUnique || told {
			params = append(params, columns[c].text())
		}
	}
	return params
}

// text returns the row's value in a column as text, "" if it has none.
func (r *row) text(column int) string {
	switch column {
	case sendBody:
		return `\x` + hex.EncodeToString(r.body)
	case sendDelay:
		if r.Delay > 0 {
			return fmt.Sprint(r.Delay.Seconds())
		}
	case sendAt:
		if !r.SendAt.IsZero() {
			return r.SendAt.UTC().Format(time.RFC3339Nano)
		}
	case sendPriority:
		if r.Priority != 0 {
			return fmt.Sprint(r.Priority)
		}
	case sendDedupeWindow:
		if r.DedupeWindow > 0 {
			return fmt.Sprint(r.DedupeWindow.Seconds())
		}
	case sendHeaders:
		return string(r.headers)
	case sendTerms:
		return termsJSON(r.Terms)
	case sendUnique:
		if r.Unique != nil {
			return string(uniqueJSON(r.Unique))
		}
	default:
		text, _ := r.appendCell(nil, column) // the column is of type text
		return string(text)
	}
	return ""
}

// textArray builds an array literal; see "Array Input and Output Syntax" in PostgreSQL's
// documentation.
type textArray struct{ b strings.Builder }

func (a *textArray) separate() {
	if a.b.Len() == 0 {
		a.b.WriteByte('{')
	} else {
		a.b.WriteByte(',')
	}
}

var quoteElement = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func (a *textArray) add(s string) {
	a.separate()
	a.b.WriteByte('"')
	a.b.WriteString(quoteElement.Replace(s))
	a.b.WriteByte('"')
}

func (a *textArray) addOptional(s string) {
	if s == "" {
		a.separate()
		a.b.WriteString("NULL")
		return
	}
	a.add(s)
}

func (a *textArray) text() string {
	if a.b.Len() == 0 {
		return "{}"
	}
	return a.b.String() + "}"
}
