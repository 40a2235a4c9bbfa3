package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/jsoncheck"
)

// maxRows and maxBytes bound one statement; larger sends take several in the same
// transaction. PostgreSQL takes at most 1 GB of parameters, and holds several copies.
const (
	maxRows  = 10_000
	maxBytes = 32 << 20
)

// firstPart is how many of rows the next statement sends: at least one.
func firstPart(rows []row) int {
	bytes := 0
	for i := range min(len(rows), maxRows) {
		if bytes += len(rows[i].body) + len(rows[i].headers); bytes > maxBytes && i > 0 {
			return i
		}
	}
	return min(len(rows), maxRows)
}

var sendRows = statement{
	name: "posthaste_send_rows",
	sql:  "select posthaste.send_rows($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15)",
	oids: []uint32{pgtype.TextArrayOID, pgtype.ByteaArrayOID, pgtype.TextArrayOID, pgtype.TextArrayOID, pgtype.TextArrayOID, pgtype.JSONBArrayOID,
		pgtype.TextArrayOID, pgtype.JSONBArrayOID, pgtype.Float8ArrayOID, pgtype.TimestamptzArrayOID, pgtype.TextArrayOID, pgtype.BoolOID,
		pgtype.Int2ArrayOID, pgtype.TextArrayOID, pgtype.Float8ArrayOID},
}

// sendRow has no parameters for what few messages have: those go by sendRows.
var sendRow = statement{
	name: "posthaste_send_row",
	sql:  "select posthaste.send_row($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12)",
	oids: []uint32{pgtype.TextOID, pgtype.ByteaOID, pgtype.TextOID, pgtype.TextOID, pgtype.TextOID, pgtype.JSONBOID,
		pgtype.TextOID, pgtype.JSONBOID, pgtype.Float8OID, pgtype.TimestamptzOID, pgtype.TextOID, pgtype.BoolOID},
}

// row is a message as it is stored: everything encoded and checked.
type row struct {
	*posthaste.Message
	body        []byte
	contentType string
	headers     []byte
	trace       string
}

// encode checks what the ledger's functions would refuse: all limits but the queue's own.
func encode(messages []posthaste.Message) ([]row, error) {
	rows := make([]row, len(messages))
	for i := range messages {
		m := &messages[i]
		r := &rows[i]
		r.Message = m
		var err error
		if r.body, r.contentType, err = m.Body(); err != nil {
			return nil, naming(err, i, len(messages))
		}
		if err := m.Check(); err != nil {
			return nil, naming(err, i, len(messages))
		}
		if posthaste.IsJSON(r.contentType) {
			if err := checkJSON(r.body, given(m.Payload)); err != nil {
				return nil, naming(err, i, len(messages))
			}
		}
		if r.contentType == posthaste.ContentTypeJSON {
			r.contentType = "" // as most are
		}
		if err := r.encodeHeaders(); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// encodeHeaders puts the trace context into a column of its own: with most
// messages it is the only header, and JSON would cost half as much as all else.
func (r *row) encodeHeaders() (err error) {
	headers := r.Headers
	if trace := headers[posthaste.HeaderTraceParent]; trace != "" && len(trace) <= posthaste.MaxWordBytes {
		r.trace = trace
		if len(headers) > 1 {
			headers = maps.Clone(headers)
			delete(headers, posthaste.HeaderTraceParent)
		} else {
			headers = nil
		}
	}
	if len(headers) > 0 {
		if r.headers, err = json.Marshal(headers); err != nil {
			return posthaste.Invalidf("headers", "headers cannot be encoded: %v", err)
		}
	}
	return nil
}

// checkJSON does as [jsoncheck.Check] does, three times as fast where nothing is wrong: its
// validation was a quarter of the client's work. What Body marshalled itself is valid.
func checkJSON(body []byte, given bool) error {
	if given && !jsontext.Value(body).IsValid(allowDuplicates) || bytes.Contains(body, []byte(`\u`)) || jsoncheck.Readable(body) != "" {
		return jsoncheck.Check("payload", body)
	}
	return nil
}

var allowDuplicates = jsontext.AllowDuplicateNames(true)

func given(payload any) bool {
	switch payload.(type) {
	case []byte, json.RawMessage:
		return true
	}
	return false
}

func naming(err error, i, n int) error {
	if n == 1 {
		return err
	}
	return fmt.Errorf("message %d: %w", i+1, err)
}

// Send implements [posthaste.Engine], in one transaction.
func (e *Engine) Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.MessageID, error) {
	rows, err := encode(messages)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	conn, err := e.pool.Acquire(ctx)
	if err != nil {
		return nil, readError(err)
	}
	defer conn.Release()
	if firstPart(rows) == len(rows) {
		ids, err := e.sendArrays(ctx, conn.Conn(), rows)
		return ids, writeError(err)
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		return nil, readError(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	ids, err := e.sendIn(ctx, conn.Conn(), rows)
	if err != nil {
		return nil, readError(err) // nothing was committed
	}
	return ids, writeError(tx.Commit(ctx))
}

// sendIn sends rows in the transaction that is open on conn.
func (e *Engine) sendIn(ctx context.Context, conn *pgx.Conn, rows []row) ([]posthaste.MessageID, error) {
	ids := make([]posthaste.MessageID, 0, len(rows))
	for len(rows) > 0 {
		part := rows[:firstPart(rows)]
		rows = rows[len(part):]
		some, err := e.sendArrays(ctx, conn, part)
		if err != nil {
			return nil, err
		}
		ids = append(ids, some...)
	}
	return ids, nil
}

// sendArrays sends rows by one call of posthaste.send_rows, or of
// posthaste.send_row, which is cheaper for one.
func (e *Engine) sendArrays(ctx context.Context, conn *pgx.Conn, rows []row) ([]posthaste.MessageID, error) {
	if len(rows) == 1 && rows[0].plain() {
		var id posthaste.MessageID
		err := e.pipeline(ctx, conn, func(_ int, values [][]byte) error {
			id = posthaste.MessageID(readInt8(values[0]))
			return nil
		}, bound{statement: &sendRow, params: append(rows[0].cells(plainCells), boolParam(!rows[0].NoWake))})
		if err == nil && id == 0 {
			err = errors.New("posthaste.send_row answered no id")
		}
		if err != nil {
			return nil, err
		}
		return []posthaste.MessageID{id}, nil
	}
	var ids []posthaste.MessageID
	err := e.pipeline(ctx, conn, func(_ int, values [][]byte) error {
		for _, id := range readInt8Array(values[0]) {
			ids = append(ids, posthaste.MessageID(id))
		}
		return nil
	}, bound{statement: &sendRows, params: rowParams(rows)})
	if err == nil && len(ids) != len(rows) {
		err = fmt.Errorf("posthaste.send_rows answered %d ids for %d messages", len(ids), len(rows))
	}
	return ids, err
}

// plain reports whether send_row can send the row.
func (r *row) plain() bool { return r.Priority == 0 && r.DedupeKey == "" }

// plainCells is how many of a row's cells send_row takes.
const plainCells = 11

// cells are the row's columns in the order of send_row's and send_rows'
// parameters but for wake, nil where the message has none.
func (r *row) cells(columns int) [][]byte {
	cells := make([][]byte, columns)
	for c := range cells {
		if cell, given := r.appendCell([]byte{}, c); given {
			cells[c] = cell
		}
	}
	return cells
}

// appendCell appends the row's value in a column, and reports whether there is one; if
// not, it allocates nothing.
func (r *row) appendCell(b []byte, column int) ([]byte, bool) {
	text := func(s string) ([]byte, bool) { return append(b, s...), s != "" }
	switch column {
	case 0:
		return append(b, r.Queue...), true
	case 1:
		return append(b, r.body...), true
	case 2:
		return text(r.contentType)
	case 3:
		return text(r.Key)
	case 4:
		return text(r.Kind)
	case 5:
		if r.headers != nil {
			return append(append(b, 1), r.headers...), true
		}
	case 6:
		return text(r.Reference)
	case 7:
		if len(r.Terms) > 0 {
			return append(append(b, 1), termsJSON(r.Terms)...), true
		}
	case 8:
		if r.Delay > 0 {
			return append(b, float8(r.Delay.Seconds())...), true
		}
	case 9:
		if !r.SendAt.IsZero() {
			return append(b, timeParam(r.SendAt)...), true
		}
	case 10:
		return text(r.trace)
	case 11:
		if r.Priority != 0 {
			return append(b, int2Param(int16(r.Priority))...), true
		}
	case 12:
		return text(r.DedupeKey)
	case 13:
		if r.DedupeWindow > 0 {
			return append(b, float8(r.DedupeWindow.Seconds())...), true
		}
	}
	return b, false
}

// rowColumns are the types of what appendCell appends.
var rowColumns = []uint32{pgtype.TextOID, pgtype.ByteaOID, pgtype.TextOID, pgtype.TextOID, pgtype.TextOID, pgtype.JSONBOID, pgtype.TextOID,
	pgtype.JSONBOID, pgtype.Float8OID, pgtype.TimestamptzOID, pgtype.TextOID, pgtype.Int2OID, pgtype.TextOID, pgtype.Float8OID}

func rowParams(rows []row) [][]byte {
	wake, bodies := false, 0
	for i := range rows {
		wake = wake || !rows[i].NoWake
		bodies += len(rows[i].body)
	}
	params := make([][]byte, 0, len(rowColumns)+1)
	for c, element := range rowColumns {
		if c == plainCells {
			params = append(params, boolParam(wake))
		}
		has := func(r row) bool { _, given := r.appendCell(nil, c); return given }
		// What no message has is null as a whole, which costs the server nothing.
		if c > 1 && !slices.ContainsFunc(rows, has) {
			params = append(params, nil)
			continue
		}
		size := 20 * len(rows)
		if element == pgtype.ByteaOID {
			size = bodies
		}
		params = append(params, arrayOf(element, len(rows), size, func(b []byte, i int) ([]byte, bool) { return rows[i].appendCell(b, c) }))
	}
	return params
}

// termsJSON is terms as a JSON array, or nothing.
func termsJSON(terms []string) string {
	if len(terms) == 0 {
		return ""
	}
	b, _ := json.Marshal(terms) // strings always encode
	return string(b)
}
