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
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/jsoncheck"
)

// maxRows and maxBytes bound one statement; a larger send runs several in one transaction.
// PostgreSQL accepts at most 1 GB of parameters, and holds several copies of them.
const (
	maxRows  = 10_000
	maxBytes = 32 << 20
)

// firstPart returns how many of rows the next statement sends, at least one.
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

// sendTold sends messages of which some may be duplicates.
var sendTold = statement{
	name: "posthaste_send_told",
	sql:  "select * from posthaste.send_told($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16)",
	oids: append(slices.Clone(sendRows.oids), pgtype.JSONBArrayOID),
}

// sendRow sends one message. It has no parameters for fields that few messages have; sendRows
// sends these.
var sendRow = statement{
	name: "posthaste_send_row",
	sql:  "select posthaste.send_row($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12)",
	oids: []uint32{pgtype.TextOID, pgtype.ByteaOID, pgtype.TextOID, pgtype.TextOID, pgtype.TextOID, pgtype.JSONBOID,
		pgtype.TextOID, pgtype.JSONBOID, pgtype.Float8OID, pgtype.TimestamptzOID, pgtype.TextOID, pgtype.BoolOID},
}

// row is a message with its encoded and checked fields.
type row struct {
	*posthaste.Message
	body        []byte
	contentType string
	headers     []byte
	trace       string
}

// encode encodes the messages and checks all limits except those of the queue.
func encode(messages []posthaste.Message) ([]row, error) {
	messages = posthaste.Completed(messages)
	rows := make([]row, len(messages))
	for i := range messages {
		m := &messages[i]
		r := &rows[i]
		r.Message = m
		var err error
		if r.body, r.contentType, err = m.Body(); err != nil {
			return nil, withPosition(err, i, len(messages))
		}
		if err := m.Check(); err != nil {
			return nil, withPosition(err, i, len(messages))
		}
		if posthaste.IsJSON(r.contentType) {
			if err := checkJSON(r.body, given(m.Payload)); err != nil {
				return nil, withPosition(err, i, len(messages))
			}
		}
		if r.contentType == posthaste.ContentTypeJSON {
			r.contentType = "" // the default of the column
		}
		if err := r.encodeHeaders(); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// encodeHeaders encodes the headers. The trace context has its own column: it is the only
// header of most messages, and its JSON would cost half as much as all other encoding.
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
	options := attemptOptions{r.MaxAttempts, r.Timeout.Seconds(), r.Backoff.Base.Seconds(), r.Backoff.Max.Seconds()}
	switch {
	case options != attemptOptions{}:
		all := map[string]any{attemptHeader: options}
		for name, value := range headers {
			all[name] = value
		}
		r.headers, err = json.Marshal(all)
	case len(headers) > 0:
		r.headers, err = json.Marshal(headers)
	}
	if err != nil {
		return posthaste.Invalidf("headers", "headers cannot be encoded: %v", err)
	}
	return nil
}

// attemptHeader is the name in the stored headers that has the options of the message's
// attempts. No header of a message has this name.
const attemptHeader = ""

// attemptOptions are the options of a message's attempts as they are stored, in seconds.
type attemptOptions struct {
	Attempts int     `json:"attempts,omitempty"`
	Timeout  float64 `json:"timeout,omitempty"`
	Base     float64 `json:"base,omitempty"`
	Max      float64 `json:"max,omitempty"`
}

// checkJSON is [jsoncheck.Check], but three times as fast for valid JSON, because validation is
// a quarter of the client's work. If given is false, Body marshaled the payload, and it is valid.
func checkJSON(body []byte, given bool) error {
	if given && !jsontext.Value(body).IsValid(allowDuplicates) || bytes.Contains(body, []byte(`\u`)) || jsoncheck.Readable(body) != "" {
		return jsoncheck.Check("payload", body)
	}
	return nil
}

var allowDuplicates = jsontext.AllowDuplicateNames(true)

// given reports whether a payload is JSON that the caller encoded.
func given(payload any) bool {
	switch payload.(type) {
	case []byte, json.RawMessage:
		return true
	}
	return false
}

// withPosition adds to err which of n messages it is about, if there are several.
func withPosition(err error, i, n int) error {
	if n == 1 {
		return err
	}
	return fmt.Errorf("message %d: %w", i+1, err)
}

// Send implements [posthaste.Engine], in one transaction.
func (e *Engine) Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.Sent, error) {
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
		sent, err := e.session(conn).sendPart(ctx, rows)
		return sent, writeError(err)
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		return nil, readError(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	sent, err := e.session(conn).send(ctx, rows)
	if err != nil {
		return nil, readError(err) // nothing was committed
	}
	return sent, writeError(tx.Commit(ctx))
}

// send sends rows in the transaction that is open on the connection.
func (s session) send(ctx context.Context, rows []row) ([]posthaste.Sent, error) {
	sent := make([]posthaste.Sent, 0, len(rows))
	for len(rows) > 0 {
		part := rows[:firstPart(rows)]
		rows = rows[len(part):]
		some, err := s.sendPart(ctx, part)
		if err != nil {
			return nil, err
		}
		sent = append(sent, some...)
	}
	return sent, nil
}

// sendPart sends rows in one call of posthaste.send_rows, or of posthaste.send_row, which is
// cheaper for one row, or of posthaste.send_told if a row may be a duplicate.
func (s session) sendPart(ctx context.Context, rows []row) ([]posthaste.Sent, error) {
	if len(rows) == 1 && rows[0].plain() {
		var id int64
		err := s.pipeline(ctx, func(_ int, values [][]byte) error {
			id = readInt8(values[0])
			return nil
		}, bound{statement: &sendRow, params: append(rows[0].cells(plainColumns), boolParam(!rows[0].NoWake))})
		if err == nil && id == 0 {
			err = errors.New("posthaste.send_row returned no id")
		}
		if err != nil {
			return nil, err
		}
		return []posthaste.Sent{{ID: posthaste.MessageID(id)}}, nil
	}
	sent := make([]posthaste.Sent, 0, len(rows))
	call := bound{statement: &sendRows, params: rowParams(rows, sendUnique)}
	read := func(_ int, values [][]byte) error {
		for _, id := range readInt8Array(values[0]) {
			sent = append(sent, posthaste.Sent{ID: posthaste.MessageID(id)})
		}
		return nil
	}
	if told(rows) {
		call = bound{statement: &sendTold, params: rowParams(rows, len(sendTypes))}
		read = func(_ int, values [][]byte) error {
			sent = append(sent, posthaste.Sent{ID: posthaste.MessageID(readInt8(values[0])), Duplicate: readBool(values[1]), Replaced: readBool(values[2]), State: posthaste.State(values[3])})
			return nil
		}
	}
	err := s.pipeline(ctx, read, call)
	if err == nil && len(sent) != len(rows) {
		err = fmt.Errorf("%s returned %d ids for %d messages", call.statement.name, len(sent), len(rows))
	}
	return sent, err
}

// told reports whether one of the rows may be a duplicate.
func told(rows []row) bool {
	return slices.ContainsFunc(rows, func(r row) bool { return r.DedupeKey != "" || r.Unique != nil })
}

// plain reports whether send_row can send the row.
func (r *row) plain() bool { return r.Priority == 0 && r.DedupeKey == "" && r.Unique == nil }

// The columns of a row, in the order of the parameters of send_told. send_rows has no parameter
// for sendUnique, and send_row none for those from sendPriority on. All have wake after sendTrace.
const (
	sendQueue = iota
	sendBody
	sendContentType
	sendKey
	sendKind
	sendHeaders
	sendReference
	sendTerms
	sendDelay
	sendAt
	sendTrace
	sendPriority
	sendDedupeKey
	sendDedupeWindow
	sendUnique

	plainColumns = sendPriority // the number of columns of send_row
)

// sendTypes are the types of the columns.
var sendTypes = [...]uint32{
	sendQueue:        pgtype.TextOID,
	sendBody:         pgtype.ByteaOID,
	sendContentType:  pgtype.TextOID,
	sendKey:          pgtype.TextOID,
	sendKind:         pgtype.TextOID,
	sendHeaders:      pgtype.JSONBOID,
	sendReference:    pgtype.TextOID,
	sendTerms:        pgtype.JSONBOID,
	sendDelay:        pgtype.Float8OID,
	sendAt:           pgtype.TimestamptzOID,
	sendTrace:        pgtype.TextOID,
	sendPriority:     pgtype.Int2OID,
	sendDedupeKey:    pgtype.TextOID,
	sendDedupeWindow: pgtype.Float8OID,
	sendUnique:       pgtype.JSONBOID,
}

// cells returns the values of the row's first columns, nil where the message has none.
func (r *row) cells(columns int) [][]byte {
	cells := make([][]byte, columns)
	for c := range cells {
		if cell, given := r.appendCell([]byte{}, c); given {
			cells[c] = cell
		}
	}
	return cells
}

// jsonbVersion is the byte that starts a jsonb value in binary form.
const jsonbVersion = 1

// appendCell appends the row's value in a column, and reports whether it has one. It
// allocates nothing for a value that the row does not have.
func (r *row) appendCell(b []byte, column int) ([]byte, bool) {
	text := func(s string) ([]byte, bool) { return append(b, s...), s != "" }
	switch column {
	case sendQueue:
		return append(b, r.Queue...), true
	case sendBody:
		return append(b, r.body...), true
	case sendContentType:
		return text(r.contentType)
	case sendKey:
		return text(r.Key)
	case sendKind:
		return text(r.Kind)
	case sendHeaders:
		if r.headers != nil {
			return append(append(b, jsonbVersion), r.headers...), true
		}
	case sendReference:
		return text(r.Reference)
	case sendTerms:
		if len(r.Terms) > 0 {
			return append(append(b, jsonbVersion), termsJSON(r.Terms)...), true
		}
	case sendDelay:
		if r.Delay > 0 {
			return append(b, float8(r.Delay.Seconds())...), true
		}
	case sendAt:
		if !r.SendAt.IsZero() {
			return append(b, timeParam(r.SendAt)...), true
		}
	case sendTrace:
		return text(r.trace)
	case sendPriority:
		if r.Priority != 0 {
			return append(b, int2Param(int16(r.Priority))...), true
		}
	case sendDedupeKey:
		return text(r.DedupeKey)
	case sendDedupeWindow:
		if r.DedupeWindow > 0 {
			return append(b, float8(r.DedupeWindow.Seconds())...), true
		}
	case sendUnique:
		if r.Unique != nil {
			return append(append(b, jsonbVersion), uniqueJSON(r.Unique)...), true
		}
	}
	return b, false
}

// rowParams returns the parameters of the first columns, with wake among them.
func rowParams(rows []row, columns int) [][]byte {
	wake, bodies := false, 0
	for i := range rows {
		wake = wake || !rows[i].NoWake
		bodies += len(rows[i].body)
	}
	params := make([][]byte, 0, columns+1)
	for c, element := range sendTypes[:columns] {
		if c == plainColumns {
			params = append(params, boolParam(wake))
		}
		has := func(r row) bool { _, given := r.appendCell(nil, c); return given }
		// A column that no message has is null instead of an array of nulls, which costs
		// the server nothing.
		if c > sendBody && !slices.ContainsFunc(rows, has) {
			params = append(params, nil)
			continue
		}
		size := 20 * len(rows)
		if c == sendBody {
			size = bodies
		}
		params = append(params, arrayOf(element, len(rows), size, func(b []byte, i int) ([]byte, bool) { return rows[i].appendCell(b, c) }))
	}
	return params
}

// uniqueJSON returns the option unique.
func uniqueJSON(u *posthaste.Unique) []byte {
	b, _ := json.Marshal(struct { // strings always encode
		Key      string           `json:"key,omitempty"`
		Until    posthaste.Until  `json:"until,omitempty"`
		Exists   posthaste.Exists `json:"exists,omitempty"`
		MaxDelay float64          `json:"max_delay,omitempty"`
	}{u.Key, u.Until, u.Exists, u.MaxDelay.Seconds()})
	return b
}

// termsJSON returns terms as a JSON array, or "" if there are none.
func termsJSON(terms []string) string {
	if len(terms) == 0 {
		return ""
	}
	b, _ := json.Marshal(terms) // strings always encode
	return string(b)
}
