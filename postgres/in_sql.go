package postgres

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// SQLTx is an open transaction of package database/sql with any driver, or of a library on top
// of it: *sql.Tx, *sqlx.Tx, bun.Tx, *ent.Tx, and the Statement.ConnPool of a *gorm.DB that is
// in a transaction. A *sql.DB has these methods, too, but is not a transaction; see [InSQL].
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// InSQL returns the Tx of a database/sql transaction. All methods of the Tx fail with
// [posthaste.CodeRefused], and change nothing, if tx is not in a transaction: a *sql.DB would
// commit the message by itself, also if the caller's other statements fail.
//
// A value with the methods Commit and Rollback is a transaction. For any other value, such as a
// *sql.Conn or a wrapper without these methods, each call asks PostgreSQL whether a transaction
// is open. That costs one more round trip, which locks pg_am in access share mode, as each query
// of it does.
//
// If a type embeds a *sql.Tx, as bun.Tx does, statements go to the embedded transaction: Bun has
// its own placeholders, and would not pass the parameters.
func InSQL(tx SQLTx) Tx {
	if _, plain := tx.(*sql.Tx); !plain {
		if inner := embeddedTx(tx); inner != nil {
			tx = inner
		}
	}
	return Tx{sqlTx{tx}}
}

// embeddedTx returns the *sql.Tx that the struct of tx embeds, or nil.
func embeddedTx(tx SQLTx) *sql.Tx {
	value := reflect.Indirect(reflect.ValueOf(tx))
	if value.Kind() != reflect.Struct {
		return nil
	}
	field, found := value.Type().FieldByName("Tx")
	if !found || !field.Anonymous || len(field.Index) != 1 {
		return nil
	}
	inner, _ := value.FieldByIndex(field.Index).Interface().(*sql.Tx)
	return inner
}

type sqlTx struct{ SQLTx }

// check returns an error unless statements of t run in a transaction.
func (t sqlTx) check(ctx context.Context) error {
	switch t.SQLTx.(type) {
	case interface {
		Commit() error
		Rollback() error
	}:
		return nil
	case *sql.DB, nil:
		return noTransaction(t.SQLTx, nil)
	}
	// LOCK fails outside of a transaction, needs no other statement to undo it, and this
	// table may be read by every role and is never locked otherwise.
	_, err := t.ExecContext(ctx, "lock table pg_catalog.pg_am in access share mode")
	if pg := serverResponse(err); pg != nil && pg.Code == "25P01" {
		return noTransaction(t.SQLTx, err)
	}
	return err
}

// noTransaction is the error for a value that is not in a transaction. Its remedy is no hint,
// because those are told over HTTP and on the command line, where this error cannot occur.
func noTransaction(value SQLTx, cause error) error {
	return &posthaste.Error{Code: posthaste.CodeRefused, Field: "tx", Cause: cause, Message: fmt.Sprintf("postgres.InSQL was given a %T "+
		"that is not in a transaction, so each statement would commit by itself: begin one with db.BeginTx, pass its tx to InSQL and commit it; "+
		"to send without a transaction use posthaste.NewClient", value)}
}

// send passes arrays as text, which all drivers support.
func (t sqlTx) send(ctx context.Context, rows []row) ([]posthaste.Sent, error) {
	if err := t.check(ctx); err != nil {
		return nil, err
	}
	var sent []posthaste.Sent
	for len(rows) > 0 {
		part := rows[:firstPart(rows)]
		rows = rows[len(part):]
		query, columns := sendSQL(told(part))
		err := t.rows(ctx, query, textParams(part, columns), func(scan func(...any) error) error {
			var one posthaste.Sent
			err := scan((*int64)(&one.ID), &one.Duplicate, &one.Replaced, (*string)(&one.State))
			sent = append(sent, one)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return sent, nil
}

func (t sqlTx) query(ctx context.Context, statement string, scan func(func(...any) error) error) error {
	if err := t.check(ctx); err != nil {
		return err
	}
	return t.rows(ctx, statement, nil, scan)
}

// rows calls scan for each row of a statement.
func (t sqlTx) rows(ctx context.Context, statement string, params []any, scan func(func(...any) error) error) error {
	found, err := t.QueryContext(ctx, statement, params...)
	if err != nil {
		return err
	}
	defer found.Close()
	for found.Next() {
		if err := scan(found.Scan); err != nil {
			return err
		}
	}
	if err := found.Err(); err != nil {
		return err
	}
	return found.Close()
}

// sendSQL returns the statement that sends, and how many columns of a row are its parameters.
// Only told, which costs more, tells of duplicates.
func sendSQL(told bool) (query string, columns int) {
	const first = `$1::text::text[], $2::text::bytea[], $3::text::text[], $4::text::text[], $5::text::text[],
		$6::text::jsonb[], $7::text::text[], $8::text::jsonb[], $9::text::float8[], $10::text::timestamptz[], $11::text::text[], $12::boolean,
		$13::text::smallint[], $14::text::text[], $15::text::float8[]`
	if told {
		return "select id, duplicate, replaced, coalesce(state, '') from posthaste.send_told(" + first + ", $16::text::jsonb[])", len(sendTypes)
	}
	return "select unnest(posthaste.send_rows(" + first + ")), false, false, ''", sendUnique
}

func (t sqlTx) ack(ctx context.Context, ids []int64, options string) error {
	if err := t.check(ctx); err != nil {
		return err
	}
	var list textArray
	for _, id := range ids {
		list.add(fmt.Sprint(id))
	}
	_, err := t.ExecContext(ctx, `select posthaste.ack($1::text::bigint[], $2::text)`, list.text(), options)
	return err
}

func (t sqlTx) checkpoint(ctx context.Context, id int64, value string) error {
	if err := t.check(ctx); err != nil {
		return err
	}
	_, err := t.ExecContext(ctx, `select posthaste.checkpoint($1::text::bigint, $2::text::jsonb)`, fmt.Sprint(id), value)
	return err
}

// textParams returns the parameters of the first columns as array literals, with wake among them.
func textParams(rows []row, width int) []any {
	columns := make([]textArray, width)
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
		params = append(params, columns[c].text())
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
