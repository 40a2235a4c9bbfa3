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
)

// Tx sends and settles inside a transaction that the caller owns: messages
// leave when it commits and never if it rolls back, and an acknowledgement
// takes effect together with the caller's own writes. It is as safe for
// concurrent use as the transaction is, which is not at all.
type Tx struct {
	tx transaction
}

// transaction is what [In] and [InSQL] need of the two kinds.
type transaction interface {
	send(ctx context.Context, rows []row) ([]posthaste.MessageID, error)
	ack(ctx context.Context, ids []int64) error
}

// In works inside a pgx transaction.
func In(tx pgx.Tx) Tx { return Tx{pgxTx{tx}} }

// InSQL works inside a database/sql transaction, with any driver.
func InSQL(tx *sql.Tx) Tx { return Tx{sqlTx{tx}} }

// Send stores the messages in the transaction and returns their ids in order.
// If one is refused, none is stored; the transaction is then in its failed
// state, as after any error of PostgreSQL.
func (t Tx) Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.MessageID, error) {
	rows, err := encode(messages)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	ids, err := t.tx.send(ctx, rows)
	return ids, readError(err)
}

// Ack acknowledges deliveries in the transaction, so that their effects happen
// exactly once: either the effects and the acknowledgement commit, or neither
// does. It fails with code Conflict if one of them is not the caller's any
// more; the transaction must then be rolled back. Only deliveries that are
// settled one by one can be acknowledged so: received ones, and those of
// handlers that were registered as settling in their own transaction.
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

type pgxTx struct{ pgx.Tx }

// engineOfTx has no pool: it only lends its ways of encoding to a connection.
// Poolers in transaction mode are served, too, for prepared statements stay
// within the transaction's own connection only where the pool allows them.
func engineOfTx(conn *pgx.Conn) *Engine {
	mode := conn.Config().DefaultQueryExecMode
	return &Engine{polling: mode == pgx.QueryExecModeExec || mode == pgx.QueryExecModeSimpleProtocol}
}

func (t pgxTx) send(ctx context.Context, rows []row) ([]posthaste.MessageID, error) {
	conn := t.Conn()
	return engineOfTx(conn).sendIn(ctx, conn, rows)
}

func (t pgxTx) ack(ctx context.Context, ids []int64) error {
	_, err := t.Exec(ctx, `select posthaste.ack($1, '{"strict": true}')`, ids)
	return err
}

type sqlTx struct{ *sql.Tx }

// send passes arrays as text, which every driver can.
func (t sqlTx) send(ctx context.Context, rows []row) ([]posthaste.MessageID, error) {
	var ids []posthaste.MessageID
	for len(rows) > 0 {
		part := rows[:firstPart(rows)]
		rows = rows[len(part):]
		columns, wake := textColumns(part)
		found, err := t.QueryContext(ctx, `select unnest(posthaste.send_rows($1::text::text[], $2::text::bytea[], $3::text::text[], $4::text::text[], $5::text::text[],
			$6::text::jsonb[], $7::text::text[], $8::text::jsonb[], $9::text::float8[], $10::text::timestamptz[], $11::text::text[], $12::boolean,
			$13::text::smallint[], $14::text::text[], $15::text::float8[]))`,
			columns[0], columns[1], columns[2], columns[3], columns[4], columns[5], columns[6], columns[7], columns[8], columns[9], columns[10], wake, columns[11], columns[12], columns[13])
		if err != nil {
			return nil, err
		}
		for found.Next() {
			var id int64
			if err := found.Scan(&id); err != nil {
				_ = found.Close()
				return nil, err
			}
			ids = append(ids, posthaste.MessageID(id))
		}
		if err := found.Err(); err != nil {
			return nil, err
		}
		if err := found.Close(); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

func (t sqlTx) ack(ctx context.Context, ids []int64) error {
	var list textArray
	for _, id := range ids {
		list.add(fmt.Sprint(id))
	}
	_, err := t.ExecContext(ctx, `select posthaste.ack($1::text::bigint[], '{"strict": true}')`, list.text())
	return err
}

// textColumns builds the parameters of posthaste.send_rows as array literals.
func textColumns(rows []row) (columns [14]string, wake bool) {
	var lists [14]textArray
	for i := range rows {
		r := &rows[i]
		lists[0].add(r.Queue)
		lists[1].add(`\x` + hex.EncodeToString(r.body))
		lists[2].addOptional(r.contentType)
		lists[3].addOptional(r.Key)
		lists[4].addOptional(r.Kind)
		lists[5].addOptional(string(r.headers))
		lists[6].addOptional(r.Reference)
		lists[7].addOptional(termsJSON(r.Terms))
		delay, at := "", ""
		if r.Delay > 0 {
			delay = fmt.Sprint(r.Delay.Seconds())
		}
		if !r.SendAt.IsZero() {
			at = r.SendAt.UTC().Format(time.RFC3339Nano)
		}
		lists[8].addOptional(delay)
		lists[9].addOptional(at)
		lists[10].addOptional(r.trace)
		priority, window := "", ""
		if r.Priority != 0 {
			priority = fmt.Sprint(r.Priority)
		}
		if r.DedupeWindow > 0 {
			window = fmt.Sprint(r.DedupeWindow.Seconds())
		}
		lists[11].addOptional(priority)
		lists[12].addOptional(r.DedupeKey)
		lists[13].addOptional(window)
		wake = wake || !r.NoWake
	}
	for i := range lists {
		columns[i] = lists[i].text()
	}
	return columns, wake
}

// textArray builds an array literal (PostgreSQL's documentation, chapter
// Arrays, "Array Input and Output Syntax").
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
