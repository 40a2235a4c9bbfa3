package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste"
)

// Table is an outbox table that exists and fits its mapping. It uses one connection and is not
// safe for concurrent use.
type Table struct {
	mapping Mapping
	conn    *pgx.Conn

	schema, name string            // as in the catalog
	sql          string            // both, quoted
	columns      map[string]string // type by name
	idType       string
	// SQL expressions over a row r.
	id, queue, payload, options, pending, order string
	// probe is an id that the ledger allocated at the start: everything that this connection
	// sends later has a higher one.
	probe int64
	// mark marks a row as sent: "update … set …" or "delete from …", up to its where.
	mark string
}

// Open finds the table and checks everything that can be checked before writing: columns and
// their types, privileges, queues. Its errors name the flag and the remedy.
func Open(ctx context.Context, conn *pgx.Conn, m Mapping) (*Table, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	t := &Table{mapping: m, conn: conn}
	for _, step := range []func(context.Context) error{t.find, t.findColumns, t.checkZone, t.build, t.checkSQL, t.checkUnique, t.checkRights, t.checkQueues} {
		if err := step(ctx); err != nil {
			return nil, explain(err)
		}
	}
	return t, nil
}

// Name returns the table's name with its schema.
func (t *Table) Name() string { return t.schema + "." + t.name }

// find looks up the table by its exact name, and as SQL would parse it.
func (t *Table) find(ctx context.Context) error {
	exact := make([]string, 0, 2)
	for part := range strings.SplitSeq(t.mapping.Table, ".") {
		exact = append(exact, identifier(part))
	}
	var kind string
	for _, name := range []string{strings.Join(exact, "."), t.mapping.Table} {
		err := t.conn.QueryRow(ctx, `select n.nspname, c.relname, c.relkind::text from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
			where c.oid = to_regclass($1)`, name).Scan(&t.schema, &t.name, &kind)
		var pg *pgconn.PgError
		if err == nil {
			break
		}
		if !errors.Is(err, pgx.ErrNoRows) && (!errors.As(err, &pg) || pg.Code == "42501") {
			return err
		}
	}
	switch kind {
	case "r", "p":
	case "":
		return invalid("table", "name it with its schema, such as public.outbox; check the database in --database-url and that this user may use the schema",
			"table %q not found", t.mapping.Table)
	default:
		return invalid("table", "name the table behind it", "%s.%s is not a table", t.schema, t.name)
	}
	t.sql = identifier(t.schema) + "." + identifier(t.name)
	return nil
}

// findColumns replaces the names in the mapping by the actual column names.
func (t *Table) findColumns(ctx context.Context) error {
	rows, err := t.conn.Query(ctx, `select a.attname, format_type(a.atttypid, null) from pg_catalog.pg_attribute a
		where a.attrelid = to_regclass($1) and a.attnum > 0 and not a.attisdropped order by a.attnum`, t.sql)
	if err != nil {
		return err
	}
	t.columns = map[string]string{}
	var all []string
	var name, kind string
	_, err = pgx.ForEachRow(rows, []any{&name, &kind}, func() error {
		t.columns[name] = kind
		all = append(all, name)
		return nil
	})
	if err != nil {
		return err
	}
	var faults []error
	resolve := func(flag string, column *string) {
		if *column == "" || t.columns[*column] != "" {
			return
		}
		if lower := strings.ToLower(*column); t.columns[lower] != "" {
			*column = lower
			return
		}
		faults = append(faults, invalid(flag, "it has "+strings.Join(all, ", "), "--%s: table %s has no column %q", flag, t.Name(), *column))
	}
	m := &t.mapping
	headers := map[string]string{}
	for header, column := range m.HeaderColumns {
		resolve("header "+header, &column)
		headers[header] = column
	}
	m.HeaderColumns = headers
	for flag, column := range map[string]*string{"id": &m.ID, "payload": &m.Payload, "queue-column": &m.QueueColumn, "key": &m.Key, "kind": &m.Kind,
		"headers": &m.Headers, "created-at": &m.CreatedAt, "send-at": &m.SendAt, "sent": &m.Sent} {
		resolve(flag, column)
	}
	return errors.Join(faults...)
}

// checkZone accepts only names of time zones. PostgreSQL accepts more: abbreviations, which
// have no daylight saving time, and any word followed by a number as a zone with that offset.
func (t *Table) checkZone(ctx context.Context) error {
	zone := t.mapping.SendAtZone
	if zone == "" || zone == "UTC" {
		return nil
	}
	var known bool
	err := t.conn.QueryRow(ctx, "select exists (select from pg_catalog.pg_timezone_names where name = $1 and strpos(name, '/') > 0)", zone).Scan(&known)
	if err == nil && !known {
		return invalid("send-at-zone", "UTC, or a name of the view pg_timezone_names with a place in it, such as Europe/Berlin", "--send-at-zone: unknown time zone %q", zone)
	}
	return err
}

// sendAt returns the time before which a row must not be handed out, as text with its offset.
// It must not depend on session settings: the import has other settings than the writers in
// whose sessions the trigger runs.
func (t *Table) sendAt(column string) (string, error) {
	m := t.mapping
	switch kind := t.columns[m.SendAt]; {
	case kind == "timestamp with time zone" && m.SendAtZone == "":
	case kind == "timestamp with time zone":
		return "", invalid("send-at-zone", "leave it out", "--send-at-zone: the times of column %s already have a zone", m.SendAt)
	case kind == "timestamp without time zone" && m.SendAtZone != "":
		column = "(" + column + " at time zone " + literal(m.SendAtZone) + ")"
	case kind == "timestamp without time zone":
		return "", invalid("send-at", "name the zone of its times: --send-at-zone Europe/Berlin, or UTC; or change the column to timestamp with time zone",
			"--send-at: column %s is a timestamp without time zone, so its meaning would depend on the TimeZone of each session that inserts or imports", m.SendAt)
	default:
		return "", invalid("send-at", "it must be a timestamp with time zone, or one without and --send-at-zone", "--send-at: column %s is of type %s", m.SendAt, kind)
	}
	return "to_jsonb(" + column + ") #>> '{}'", nil
}

// build builds the expressions.
func (t *Table) build(context.Context) error {
	m := t.mapping
	column := func(name string) string { return "r." + identifier(name) }
	text := func(name string) string { return column(name) + "::text" }
	t.id, t.idType = column(m.ID), t.columns[m.ID]
	t.order = t.id
	if m.CreatedAt != "" {
		t.order = column(m.CreatedAt) + ", " + t.id
	}
	t.queue = literal(m.Queue)
	if m.QueueColumn != "" {
		t.queue = text(m.QueueColumn)
	}

	contentType, err := t.buildPayload(column)
	if err != nil {
		return err
	}
	headers, err := t.headers(column)
	if err != nil {
		return err
	}
	options := []string{"'content_type'", literal(contentType), "'reference'", text(m.ID), "'dedupe_key'", literal(t.Name()+"/") + " || " + text(m.ID)}
	for _, x := range []struct{ option, column string }{{"key", m.Key}, {"kind", m.Kind}} {
		if x.column != "" {
			options = append(options, literal(x.option), text(x.column))
		}
	}
	if m.SendAt != "" {
		at, err := t.sendAt(column(m.SendAt))
		if err != nil {
			return err
		}
		options = append(options, "'send_at'", at)
	}
	if len(headers) > 0 {
		for i := range headers {
			headers[i] = "coalesce(" + headers[i] + ", '{}')"
		}
		options = append(options, "'headers'", strings.Join(headers, " || "))
	}
	t.options = "jsonb_strip_nulls(jsonb_build_object(" + strings.Join(options, ", ") + "))"
	return t.buildMark(column)
}

// buildPayload builds the payload's expression and returns its content type.
func (t *Table) buildPayload(column func(string) string) (contentType string, err error) {
	m, none := t.mapping, ""
	switch kind := t.columns[m.Payload]; kind {
	case "json", "jsonb":
		contentType, none = "application/json", "null"
	case "text", "character varying", "character":
		contentType = "text/plain"
	case "bytea":
		contentType = "application/octet-stream"
		t.payload = fmt.Sprintf("coalesce(%s, '')", column(m.Payload))
	default:
		return "", invalid("payload", "it must be json, jsonb, text or bytea", "--payload: column %s is of type %s", m.Payload, kind)
	}
	if t.payload == "" {
		t.payload = fmt.Sprintf("convert_to(coalesce(%s, %s), 'UTF8')", column(m.Payload)+"::text", literal(none))
	}
	return cmp.Or(m.ContentType, contentType), nil
}

// headers returns the expressions of objects whose members are headers.
func (t *Table) headers(column func(string) string) (objects []string, err error) {
	m := t.mapping
	if m.Headers != "" {
		if kind := t.columns[m.Headers]; kind != "json" && kind != "jsonb" {
			return nil, invalid("headers", "it must be json or jsonb, an object of strings; single columns become headers with --header NAME=COLUMN",
				"--headers: column %s is of type %s", m.Headers, kind)
		}
		h := column(m.Headers) + "::jsonb"
		objects = append(objects, fmt.Sprintf("case jsonb_typeof(%[1]s) when 'object' then (select jsonb_object_agg(e.key, e.value) from jsonb_each_text(%[1]s) e) when 'null' then null else %[1]s end", h)) // the send rejects other types than objects
	}
	single := []string{}
	for _, header := range sortedKeys(m.HeaderColumns) {
		single = append(single, literal(header), "to_jsonb("+column(m.HeaderColumns[header])+") #>> '{}'")
	}
	if m.CreatedAt != "" {
		single = append(single, "'created-at'", "to_jsonb("+column(m.CreatedAt)+") #>> '{}'")
	}
	if len(single) > 0 {
		objects = append(objects, "jsonb_build_object("+strings.Join(single, ", ")+")")
	}
	return objects, nil
}

// buildMark builds the expressions that mark sent rows and select pending ones.
func (t *Table) buildMark(column func(string) string) error {
	m := t.mapping
	switch kind := t.columns[m.Sent]; {
	case m.Delete:
		t.pending, t.mark = "true", "delete from "+t.sql+" as r"
	case m.SentValue != "":
		value := literal(m.SentValue) + "::" + kind
		t.pending, t.mark = column(m.Sent)+" is distinct from "+value, "update "+t.sql+" as r set "+identifier(m.Sent)+" = "+value
	case kind == "boolean":
		t.pending, t.mark = column(m.Sent)+" is not true", "update "+t.sql+" as r set "+identifier(m.Sent)+" = true"
	case strings.HasPrefix(kind, "timestamp"):
		t.pending, t.mark = column(m.Sent)+" is null", "update "+t.sql+" as r set "+identifier(m.Sent)+" = clock_timestamp()"
	default:
		return invalid("sent", "name the value that means sent: --sent-value sent; and select the pending rows with --where: --where \"status = 'pending'\"",
			"--sent: column %s is of type %s, neither a boolean nor a timestamp", m.Sent, kind)
	}
	if m.Where != "" {
		t.pending += " and (" + m.Where + "\n)" // the line break ends a comment at the end of Where
	}
	return nil
}

// checkSQL lets the server parse all expressions as the trigger will, with the pinned search
// path.
func (t *Table) checkSQL(ctx context.Context) error {
	return t.inTx(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local search_path = pg_catalog, pg_temp"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, fmt.Sprintf("select %s, %s, %s, %s from %s as r where %s order by %s limit 0", t.id, t.queue, t.payload, t.options, t.sql, t.pending, t.order))
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code == "42501" {
			return err
		}
		switch {
		case t.mapping.SentValue != "" && strings.HasPrefix(pg.Code, "22"):
			return invalid("sent-value", "give a value of the column's type, "+t.columns[t.mapping.Sent], "--sent-value: %s", pg.Message)
		case t.mapping.Where == "":
			return invalid("table", "name other columns", "rows of %s cannot be imported with these options: %s", t.Name(), pg.Message)
		}
		return invalid("where", "it must be a condition over the table's columns; functions of your own need their schema's name", "--where: %s", pg.Message)
	}, false)
}

// checkUnique rejects ids that are not unique, because the second of two rows would count as a
// repetition of the first. In a partitioned table a unique index also needs the partition key.
func (t *Table) checkUnique(ctx context.Context) error {
	var unique bool
	err := t.conn.QueryRow(ctx, `select exists (select from pg_catalog.pg_index i join pg_catalog.pg_class c on c.oid = i.indrelid
		join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attname = $2
		where c.oid = to_regclass($1) and i.indisunique and i.indisvalid and i.indpred is null
		  and (i.indnkeyatts = 1 and i.indkey[0] = a.attnum or c.relkind = 'p' and a.attnum = any(i.indkey)))`, t.sql, t.mapping.ID).Scan(&unique)
	if err == nil && !unique {
		return invalid("id", "name the primary key, or create a unique index on the column", "--id: column %s of %s has no unique index", t.mapping.ID, t.Name())
	}
	return err
}

func (t *Table) checkRights(ctx context.Context) error {
	var read, mark, send bool
	right, column := "update", t.mapping.Sent
	if t.mapping.Delete {
		right, column = "delete", ""
	}
	err := t.conn.QueryRow(ctx, `select has_table_privilege($1, 'select'),
		case when $3 = '' then has_table_privilege($1, $2) else has_column_privilege($1, $3, $2) end,
		to_regprocedure('posthaste.send_bytes(text, bytea, anycompatible)') is not null
		  and coalesce(has_function_privilege(to_regprocedure('posthaste.send_bytes(text, bytea, anycompatible)'), 'execute'), false)`, t.sql, right, column).Scan(&read, &mark, &send)
	switch {
	case err != nil:
		return err
	case !read || !mark:
		return &posthaste.Error{Code: posthaste.CodeDenied, Message: fmt.Sprintf("this user may not read and %s rows of %s", right, t.Name()),
			Hint: fmt.Sprintf("grant select, %s on %s to this user", right, t.sql)}
	case !send:
		return &posthaste.Error{Code: posthaste.CodeDenied, Message: "this user may not send",
			Hint: "grant the role posthaste_sender to this user; if the schema is not there yet, run `posthaste migrate up`"}
	}
	return nil
}

// checkQueues sends to each named queue in a transaction that is rolled back, because a sender
// may lack the privilege to read queues.
func (t *Table) checkQueues(ctx context.Context) error {
	queues := []string{t.mapping.Queue}
	if t.mapping.QueueColumn != "" {
		rows, err := t.conn.Query(ctx, fmt.Sprintf("select distinct coalesce(%s, '') from %s as r where %s", t.queue, t.sql, t.pending))
		if err != nil {
			return err
		}
		if queues, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return err
		}
	}
	for _, queue := range queues {
		err := t.inTx(ctx, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, `select posthaste.send_bytes($1, 'null', '{"content_type": "application/json", "key": "probe", "wake": false}')`, queue).Scan(&t.probe)
		}, false)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) {
			if err != nil {
				return err
			}
			continue
		}
		if code := ledgerCode(pg); code != "" {
			hint := pg.Hint
			if code == posthaste.CodeNotFound {
				hint = fmt.Sprintf("create it first: posthaste queue create %s", queue)
			}
			return &posthaste.Error{Code: code, Field: "queue", Message: fmt.Sprintf("queue %q: %s", queue, pg.Message), Hint: hint, Cause: err}
		}
		return err
	}
	return nil
}

// inTx runs f in a transaction that is committed or rolled back. Its isolation level is read
// committed, whatever the database's default: after waiting for a row, it sees the row's
// current state.
func (t *Table) inTx(ctx context.Context, f func(pgx.Tx) error, commit bool) error {
	tx, err := t.conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // committed, or given up
	if err := f(tx); err != nil || !commit {
		return err
	}
	return tx.Commit(ctx)
}

// ledgerCode returns the code of an error of the ledger, or "" for all other errors.
func ledgerCode(pg *pgconn.PgError) posthaste.Code {
	switch pg.Code {
	case "PH400":
		return posthaste.CodeInvalid
	case "PH404":
		return posthaste.CodeNotFound
	case "PH413":
		return posthaste.CodeTooLarge
	}
	return ""
}

// explain adds remedies to the database's errors. All operations here may be repeated.
func explain(err error) error {
	var pg *pgconn.PgError
	var ours *posthaste.Error
	switch {
	case err == nil || errors.As(err, &ours) || errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &pg):
		e := &posthaste.Error{Code: ledgerCode(pg), Message: pg.Message, Hint: pg.Hint, Cause: err}
		switch {
		case pg.Code == "42501":
			e.Code, e.Hint = posthaste.CodeDenied, "grant it to this user, or run this as the table's owner"
		case pg.Code == "25006":
			e.Code, e.Hint = posthaste.CodeReadOnly, "the database is a standby or set to read only: use the primary's address"
		case pg.Code == "55P03", pg.Code == "40P01", pg.Code == "40001", strings.HasPrefix(pg.Code, "57"), strings.HasPrefix(pg.Code, "08"), strings.HasPrefix(pg.Code, "53"):
			e.Code, e.Hint = posthaste.CodeUnavailable, again
		}
		return e
	}
	return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "the database connection was lost: " + strings.Join(strings.Fields(err.Error()), " "), Hint: again, Cause: err}
}

const again = "run it again: imported rows are not imported twice"
