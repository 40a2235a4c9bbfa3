package sqlimport

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/posthaste-mq/posthaste"
)

// columns are the columns that a query may have, and the types as which they are read. The
// payload has no cast.
var columns = []struct{ name, cast string }{
	{"id", "text"}, {"queue", "text"}, {"kind", "text"}, {"content_type", "text"}, {"key", "text"},
	{"reference", "text"}, {"unique_key", "text"}, {"created_at", "text"}, {"error", "text"},
	{"headers", "jsonb"}, {"terms", "text[]"}, {"send_at", "timestamptz"},
	{"priority", "integer"}, {"attempt", "integer"}, {"max_attempts", "integer"}, {"payload", ""},
}

// row is a row of a query.
type row struct {
	id                                          string
	queue, kind, contentType, key               *string
	reference, uniqueKey, createdAt, errorOfJob *string
	headers                                     []byte
	terms                                       []string
	sendAt                                      pgtype.Timestamptz
	priority, attempt, maxAttempts              *int32
	payload                                     []byte
}

// fields returns where the columns are scanned to, in the order of [columns].
func (r *row) fields() []any {
	return []any{&r.id, &r.queue, &r.kind, &r.contentType, &r.key, &r.reference, &r.uniqueKey, &r.createdAt, &r.errorOfJob,
		&r.headers, &r.terms, &r.sendAt, &r.priority, &r.attempt, &r.maxAttempts, &r.payload}
}

// describe lets the server parse a source's query, and checks its columns.
func (i *importer) describe(ctx context.Context, s *source) error {
	tx, err := i.conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // it has written nothing
	rows, err := tx.Query(ctx, fmt.Sprintf("select * from (%s%s\n) as job limit 0", s.query, s.lock))
	if err != nil {
		return err
	}
	oids := map[string]uint32{}
	for _, f := range rows.FieldDescriptions() {
		oids[f.Name] = f.DataTypeOID
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return err
	}
	s.types = map[string]string{}
	for name, oid := range oids {
		var kind string
		if err := tx.QueryRow(ctx, "select pg_catalog.format_type($1::oid, null)", oid).Scan(&kind); err != nil {
			return err
		}
		s.types[name] = kind
	}
	return checkColumns(s.types)
}

func checkColumns(types map[string]string) error {
	var names []string
	for _, c := range columns {
		names = append(names, c.name)
	}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		if !slices.Contains(names, name) {
			return posthaste.Invalidf("query", "--query: unknown column %q; expected %s", name, strings.Join(names, ", "))
		}
	}
	for _, needed := range []string{"id", "payload"} {
		if types[needed] == "" {
			return posthaste.Invalidf("query", "--query: it has no column %q; name it with AS", needed)
		}
	}
	for name, allowed := range map[string][]string{
		"payload": {"json", "jsonb", "text", "character varying", "bytea"},
		"headers": {"json", "jsonb"},
		"send_at": {"timestamp with time zone"},
	} {
		if kind := types[name]; kind != "" && !slices.Contains(allowed, kind) {
			hint := "cast it"
			if name == "send_at" && kind == "timestamp without time zone" {
				hint = "name the zone of its times, such as send_at at time zone 'UTC'"
			}
			return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "query", Hint: hint,
				Message: fmt.Sprintf("--query: column %q is of type %s; expected %s", name, kind, strings.Join(allowed, ", "))}
		}
	}
	return nil
}

// expression returns the SQL expression of a column, which is null if the query has none.
func (s *source) expression(name string) string {
	cast := ""
	for _, c := range columns {
		if c.name == name {
			cast = c.cast
		}
	}
	if name == "payload" && s.types[name] != "bytea" {
		cast = "text"
	}
	at := "job." + name
	switch {
	case s.types[name] == "":
		at = "null"
	case name == "created_at" && s.types[name] == "timestamp with time zone":
		// It must not depend on the session's time zone, because dedupe keys contain it.
		at = `to_char(job.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`
	}
	if cast == "" {
		return at
	}
	return at + "::" + cast
}

// read reads and locks at most n jobs, except those that were rejected.
func (s *source) read(ctx context.Context, tx pgx.Tx, except []string, n int) (jobs []*row, err error) {
	list := make([]string, len(columns))
	for at, c := range columns {
		list[at] = s.expression(c.name)
	}
	rows, err := tx.Query(ctx, fmt.Sprintf("select %s from (%s%s\n) as job where not (%s = any($1::text[])) limit $2",
		strings.Join(list, ", "), s.query, s.lock, s.expression("id")), except, n)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(from pgx.CollectableRow) (*row, error) {
		var r row
		return &r, from.Scan(r.fields()...)
	})
}

// Headers of imported messages.
const (
	headerCreated = "created-at"
	headerRetries = "retry-count"
	headerError   = "error"
	headerQueue   = "import-queue" // the job's queue
)

// errorMost bounds the imported error text.
const errorMost = 1000

// message converts a row to a message. The queue is the job's own and not mapped yet.
func (r *row) message(payloadType string) (posthaste.Message, error) {
	m := posthaste.Message{Queue: text(r.queue), Kind: text(r.kind), Key: text(r.key), Reference: text(r.reference), Terms: r.terms,
		Payload: r.payload, ContentType: text(r.contentType), Headers: map[string]string{}}
	if m.Reference == "" && len(r.id) <= posthaste.MaxWordBytes {
		m.Reference = r.id
	}
	if r.payload == nil {
		m.Payload, payloadType = []byte("null"), "json"
	}
	if m.ContentType == "" {
		switch payloadType {
		case "json", "jsonb":
			m.ContentType = posthaste.ContentTypeJSON
		case "bytea":
			m.ContentType = posthaste.ContentTypeBytes
		default:
			m.ContentType = "text/plain"
		}
	}
	if err := r.addHeaders(&m); err != nil {
		return m, err
	}
	for name, value := range map[string]string{headerQueue: m.Queue, headerCreated: text(r.createdAt), headerError: shortened(text(r.errorOfJob))} {
		if value != "" {
			m.Headers[name] = value
		}
	}
	if r.attempt != nil && *r.attempt > 0 {
		m.Headers[headerRetries] = fmt.Sprint(*r.attempt)
	}
	if r.priority != nil {
		m.Priority = int(*r.priority)
	}
	if r.maxAttempts != nil {
		m.MaxAttempts = int(*r.maxAttempts)
	}
	switch {
	case r.sendAt.InfinityModifier == pgtype.Infinity:
		return m, posthaste.Invalidf("send_at", "send_at must be a time, got infinity")
	case r.sendAt.Valid && r.sendAt.InfinityModifier == pgtype.Finite && time.Until(r.sendAt.Time) > 0:
		m.SendAt = r.sendAt.Time.UTC()
	}
	return m, nil
}

// addHeaders adds the headers of the row. Values that are no strings become JSON.
func (r *row) addHeaders(m *posthaste.Message) error {
	if r.headers == nil {
		return nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(r.headers, &all); err != nil {
		return posthaste.Invalidf("headers", "headers must be a JSON object")
	}
	for name, value := range all {
		var s *string
		switch {
		case string(value) == "null":
		case json.Unmarshal(value, &s) == nil:
			m.Headers[name] = *s
		default:
			m.Headers[name] = string(value)
		}
	}
	return nil
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// shortened returns the beginning of an error text, as valid UTF-8.
func shortened(s string) string {
	if len(s) > errorMost {
		s = strings.ToValidUTF8(s[:errorMost], "")
	}
	return s
}
