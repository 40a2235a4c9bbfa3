//go:build unix

package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// patience bounds the waits of tests.
const patience = 3 * time.Minute

func newContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// database returns a database of the test in which unqualified tables are public.
func database(t *testing.T) string { return testpg.InPublic(t, testpg.New(t)) }

func connect(t *testing.T, ctx context.Context, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec(t *testing.T, ctx context.Context, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(ctx, sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func query[T any](t *testing.T, ctx context.Context, conn *pgx.Conn, sql string, args ...any) []T {
	t.Helper()
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return all
}

// plain is a typical hand-written table.
const plain = `create table outbox (id bigserial primary key, topic text not null default 'events', body jsonb, sent boolean not null default false)`

func plainMapping() Mapping {
	return Mapping{Table: "outbox", ID: "id", Payload: "body", Queue: "events", Sent: "sent"}
}

// The twin: an import that sends rows without marking them leaves them to the poller.
func TestImportRefusesWhatItCannotMark(t *testing.T) {
	t.Parallel()
	ctx := newContext(t)
	conn := connect(t, ctx, database(t))
	exec(t, ctx, conn, plain+`; insert into outbox (body) values ('1');
		create function keep() returns trigger language plpgsql as 'begin return null; end';
		create trigger keep before update on outbox for each row execute function keep()`)
	exec(t, ctx, conn, "select posthaste.create_queue('events')")
	table, err := Open(ctx, conn, plainMapping())
	if err != nil {
		t.Fatal(err)
	}
	if _, err = table.Import(ctx, Options{}); posthaste.CodeOf(err) != posthaste.CodeConflict {
		t.Errorf("error %v, want a conflict", err)
	}
	if n := query[int](t, ctx, conn, "select count(*)::int from posthaste.messages")[0]; n != 0 {
		t.Errorf("%d messages were sent", n)
	}
}

// Rows that a poller is publishing belong to it until it releases them.
func TestImportLeavesLockedRows(t *testing.T) {
	t.Parallel()
	ctx := newContext(t)
	url := database(t)
	conn, poller := connect(t, ctx, url), connect(t, ctx, url)
	exec(t, ctx, conn, plain+"; insert into outbox (body) select '1' from generate_series(1, 10)")
	exec(t, ctx, conn, "select posthaste.create_queue('events')")
	table, err := Open(ctx, conn, plainMapping())
	if err != nil {
		t.Fatal(err)
	}
	exec(t, ctx, poller, "begin")
	exec(t, ctx, poller, "select from outbox where id <= 4 for update")
	r, err := table.Import(ctx, Options{Batch: 3})
	if err != nil || r.Imported != 6 || r.Pending != 4 || r.Locked || r.Trigger {
		t.Fatalf("%+v, %v", r, err)
	}
	if r, err = table.Import(ctx, Options{Wait: time.Millisecond}); err != nil || r.Imported != 0 || !r.Locked {
		t.Fatalf("%+v, %v", r, err)
	}
	exec(t, ctx, poller, "update outbox set sent = true where id <= 3")
	var waits sync.WaitGroup
	waits.Go(func() {
		_, _ = poller.Exec(ctx, fmt.Sprintf("do $$ begin while not exists (select from pg_locks where pid = %d and not granted) loop perform pg_sleep(0.01); end loop; end $$", conn.PgConn().PID()))
		_, _ = poller.Exec(ctx, "commit")
	})
	if r, err = table.Import(ctx, Options{Wait: patience}); err != nil || r.Imported != 1 || r.Pending != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	waits.Wait()
	exec(t, ctx, conn, "update outbox set sent = false where id in (1, 5)")
	if table, err = Open(ctx, conn, plainMapping()); err != nil { // as run again
		t.Fatal(err)
	}
	if r, err = table.Import(ctx, Options{}); err != nil || r.Imported != 2 || r.Known != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	exec(t, ctx, conn, "delete from outbox where id = 1")
	if got := query[string](t, ctx, conn, "select reference from posthaste.messages where reference <> '1' order by message_id"); strings.Join(got, " ") != "5 6 7 8 9 10 4" {
		t.Errorf("sent: %v", got)
	}
}

// A row that the ledger rejects stays, and does not block others.
func TestImportLeavesRefusedRows(t *testing.T) {
	t.Parallel()
	ctx := newContext(t)
	conn := connect(t, ctx, database(t))
	exec(t, ctx, conn, `create table outbox (id uuid primary key default gen_random_uuid(), n int, body jsonb, headers jsonb, done_at timestamptz);
		insert into outbox (n, body, headers) select n, '1', case n when 3 then '"no object"'::jsonb when 11 then '[["a", "b"]]' when 12 then '7' when 13 then 'null' when 14 then '{}' end from generate_series(1, 20) n;
		update outbox set body = to_jsonb(repeat('x', 2000)) where n = 7`)
	exec(t, ctx, conn, `select posthaste.create_queue('events', '{"max_payload": 1024}')`)
	table, err := Open(ctx, conn, Mapping{Table: "outbox", ID: "id", Payload: "body", Headers: "headers", CreatedAt: "n", Queue: "events", Sent: "done_at"})
	if err != nil {
		t.Fatal(err)
	}
	for _, dry := range []bool{true, false, false} {
		r, err := table.Import(ctx, Options{DryRun: dry, Batch: 100, Wait: time.Second})
		if err != nil || len(r.Refused) != 4 {
			t.Fatalf("dry run %v: %+v, %v", dry, r, err)
		}
		for _, refused := range r.Refused {
			if !strings.HasPrefix(refused.Error, "payload of") && refused.Error != "headers must be an object whose values are strings" {
				t.Errorf("dry run %v: refused with %q", dry, refused.Error)
			}
		}
		if want := map[bool]int{true: 20, false: 4}[dry]; r.Pending != want {
			t.Errorf("dry run %v: %d rows pending, want %d", dry, r.Pending, want)
		}
	}
	if n := query[int](t, ctx, conn, "select count(*)::int from posthaste.messages")[0]; n != 16 {
		t.Errorf("%d messages, want 16", n)
	}
}

// The columns' values arrive, both by import and by trigger.
func TestMapping(t *testing.T) {
	t.Parallel()
	ctx := newContext(t)
	conn := connect(t, ctx, database(t))
	exec(t, ctx, conn, `create schema "My Shop"; create table "My Shop"."Out'box" (
		"Id" uuid primary key, agg text, "order" text, type varchar(40), payload bytea, h json, created timestamptz, due timestamptz, status text default 'new', tenant int)`)
	exec(t, ctx, conn, "select posthaste.create_queue('a'), posthaste.create_queue('b')")
	m := Mapping{Table: "My Shop.Out'box", ID: "ID", Payload: "payload", QueueColumn: "agg", Key: "order", Kind: "type", Headers: "h",
		HeaderColumns: map[string]string{"ten'ant": "tenant"}, CreatedAt: "created", SendAt: "due", Sent: "status", SentValue: "sent", Where: "status = 'new' -- only"}
	if _, err := Open(ctx, conn, m); err == nil {
		t.Error(`a column "ID" was found, and there is only "Id"`)
	}
	m.ID = "Id"
	table, err := Open(ctx, conn, m)
	if err != nil {
		t.Fatal(err)
	}
	insert := `insert into "My Shop"."Out'box" values (gen_random_uuid(), $1, 'ada', 'placed', '\x00ff', '{"a": 1, "b": null, "c": "x"}', '2026-01-02 03:04:05+00', '2099-01-01 00:00+00', $2, 7)`
	exec(t, ctx, conn, insert, "a", "new")
	exec(t, ctx, conn, insert, "a", "failed")
	if r, err := table.Import(ctx, Options{}); err != nil || r.Imported != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := table.InstallTrigger(ctx, patience); err != nil {
		t.Fatal(err)
	}
	if err := table.InstallTrigger(ctx, patience); err != nil { // again
		t.Fatal(err)
	}
	exec(t, ctx, conn, insert, "b", "new")
	exec(t, ctx, conn, insert, "b", "failed") // not a pending row
	exec(t, ctx, conn, insert+" on conflict do nothing", "b", "sent")
	if r, err := table.Import(ctx, Options{}); err != nil || r.Imported != 0 || !r.Trigger {
		t.Fatalf("%+v, %v", r, err)
	}
	got := query[string](t, ctx, conn, `select jsonb_build_object('queue', queue, 'key', key, 'kind', kind, 'type', content_type, 'payload', encode(payload, 'hex'),
		'headers', (select headers - 'created-at'), 'state', state, 'ours', exists (select from "My Shop"."Out'box" o where o."Id"::text = reference and status = 'sent'))::text
		from posthaste.messages order by queue`)
	if len(got) != 2 {
		t.Fatalf("%d messages, want 2: %v", len(got), got)
	}
	for i, queue := range []string{"a", "b"} {
		var x map[string]any
		if err := json.Unmarshal([]byte(got[i]), &x); err != nil {
			t.Fatal(err)
		}
		want := map[string]any{"queue": queue, "key": "ada", "kind": "placed", "type": "application/octet-stream", "payload": "00ff",
			"headers": map[string]any{"a": "1", "c": "x", "ten'ant": "7"}, "state": "scheduled", "ours": true}
		if fmt.Sprint(x) != fmt.Sprint(want) {
			t.Errorf("got  %v\nwant %v", x, want)
		}
	}
	if err := table.RemoveTrigger(ctx, patience); err != nil {
		t.Fatal(err)
	}
	exec(t, ctx, conn, insert, "b", "new")
	if n := query[int](t, ctx, conn, "select count(*)::int from posthaste.messages")[0]; n != 2 {
		t.Errorf("%d messages once the trigger is gone, want 2", n)
	}
}

// A time without a zone is in the zone of --send-at-zone, both in the import and in the
// trigger, whatever the zone and date style of their sessions.
func TestSendAtZone(t *testing.T) {
	t.Parallel()
	ctx := newContext(t)
	conn := connect(t, ctx, database(t))
	exec(t, ctx, conn, "select posthaste.create_queue('events')")
	exec(t, ctx, conn, "create table outbox (id bigserial primary key, body jsonb, sent boolean not null default false, due timestamp, due_tz timestamptz)")
	for column, zone := range map[string]string{"due": "Europe/Berlin", "due_tz": ""} {
		m := plainMapping()
		m.SendAt, m.SendAtZone = column, zone
		table, err := Open(ctx, conn, m)
		if err != nil {
			t.Fatal(err)
		}
		exec(t, ctx, conn, "set timezone = 'UTC'")
		exec(t, ctx, conn, "truncate outbox")
		exec(t, ctx, conn, "insert into outbox (body, due, due_tz) values ('1', '2099-07-01 12:00', '2099-07-01 10:00Z')")
		exec(t, ctx, conn, "set timezone = 'Asia/Tokyo'; set datestyle = 'SQL, DMY'")
		if r, err := table.Import(ctx, Options{}); err != nil || r.Imported != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		if err := table.InstallTrigger(ctx, patience); err != nil {
			t.Fatal(err)
		}
		exec(t, ctx, conn, "set timezone = 'America/New_York'")
		exec(t, ctx, conn, "insert into outbox (body, due, due_tz) values ('2', timestamp '2099-07-01 12:00', timestamptz '2099-07-01 10:00Z')")
		if err := table.RemoveTrigger(ctx, patience); err != nil {
			t.Fatal(err)
		}
	}
	got := query[bool](t, ctx, conn, "select coalesce(due_at = timestamptz '2099-07-01 10:00Z', false) from posthaste.messages")
	if len(got) != 4 || slices.Contains(got, false) {
		t.Errorf("of each message, whether it is held back until then: %v", got)
	}
}

// Tables whose long names begin alike have separate trigger functions, which installing again
// replaces and removing removes.
func TestTriggersOfLongNames(t *testing.T) {
	t.Parallel()
	ctx := newContext(t)
	conn := connect(t, ctx, database(t))
	exec(t, ctx, conn, "select posthaste.create_queue('a'), posthaste.create_queue('b')")
	tables, begin := map[string]*Table{}, strings.Repeat("ü", 30) // 60 bytes
	for _, queue := range []string{"a", "b"} {
		name := begin + "_" + queue
		exec(t, ctx, conn, strings.Replace(plain, "outbox", identifier(name), 1))
		m := plainMapping()
		m.Table, m.Queue = name, queue
		table, err := Open(ctx, conn, m)
		if err != nil {
			t.Fatal(err)
		}
		tables[queue] = table
	}
	insert := func(queue string) { exec(t, ctx, conn, "insert into "+tables[queue].sql+" (body) values ('1')") }
	functions := func(want int) {
		t.Helper()
		if n := query[int](t, ctx, conn, "select count(*)::int from pg_proc where proname like 'posthaste_outbox_%'")[0]; n != want {
			t.Errorf("there are %d functions, want %d", n, want)
		}
	}
	for _, queue := range []string{"a", "b", "a"} {
		if err := tables[queue].InstallTrigger(ctx, patience); err != nil {
			t.Fatal(err)
		}
	}
	functions(2)
	insert("a")
	insert("b")
	if err := tables["a"].RemoveTrigger(ctx, patience); err != nil {
		t.Fatal(err)
	}
	functions(1)
	insert("a")
	insert("b")
	if got := query[string](t, ctx, conn, "select queue || ' ' || count(*) from posthaste.messages group by queue order by queue"); strings.Join(got, ", ") != "a 1, b 2" {
		t.Errorf("messages by queue: %v", got)
	}
}

// A poller that deletes rows: imported rows are deleted, and a writer needs no privileges on
// the ledger.
func TestDeletingPoller(t *testing.T) {
	t.Parallel()
	ctx := newContext(t)
	url := database(t)
	conn := connect(t, ctx, url)
	role := "writer_" + strings.ToLower(strings.ReplaceAll(fmt.Sprint(rand.Uint32()), "-", ""))
	exec(t, ctx, conn, `create table outbox (id bigint generated always as identity, at int, body text, primary key (id, at)) partition by range (at);
		create table outbox_1 partition of outbox for values from (0) to (10);
		create role `+role+`; grant usage on schema public to `+role+`; grant insert, select on outbox, outbox_1 to `+role)
	t.Cleanup(func() {
		_, _ = conn.Exec(context.Background(), "drop owned by "+role+"; drop role "+role)
	})
	exec(t, ctx, conn, "select posthaste.create_queue('events')")
	table, err := Open(ctx, conn, Mapping{Table: "public.outbox", ID: "id", Payload: "body", Queue: "events", Delete: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := table.InstallTrigger(ctx, patience); err != nil {
		t.Fatal(err)
	}
	exec(t, ctx, conn, "begin")
	exec(t, ctx, conn, "set local role "+role)
	if id := query[int64](t, ctx, conn, "insert into outbox (at, body) values (1, 'text') returning id"); len(id) != 1 {
		t.Errorf("the insert returned %v", id)
	}
	exec(t, ctx, conn, "savepoint twice")
	exec(t, ctx, conn, "reset role")
	exec(t, ctx, conn, "alter table outbox disable trigger user")
	exec(t, ctx, conn, "insert into outbox (id, at) overriding system value values (999, 1)")
	exec(t, ctx, conn, "alter table outbox enable trigger user")
	if _, err := conn.Exec(ctx, "insert into outbox (id, at) overriding system value values (999, 2)"); err == nil || !strings.Contains(err.Error(), "have the id 999") {
		t.Errorf("two rows of one id: %v", err)
	}
	exec(t, ctx, conn, "rollback to savepoint twice")
	exec(t, ctx, conn, "insert into outbox_1 (id, at, body) overriding system value values (1000, 2, 'text')")
	exec(t, ctx, conn, "commit")
	if n := query[int](t, ctx, conn, "select count(*)::int from outbox")[0]; n != 0 {
		t.Errorf("%d rows are left", n)
	}
	if got := query[string](t, ctx, conn, "select content_type from posthaste.messages"); strings.Join(got, " ") != "text/plain text/plain" {
		t.Errorf("messages: %v", got)
	}
}

// invalidMappings are changes of a valid mapping that are rejected, with the field and a part of
// the error.
var invalidMappings = map[string]struct {
	change func(*Mapping)
	field  string
	code   posthaste.Code
	says   string
}{
	"no table":       {func(m *Mapping) { m.Table = "" }, "table", posthaste.CodeInvalid, "--table is missing"},
	"unknown table":  {func(m *Mapping) { m.Table = "nonsense; drop table outbox" }, "table", posthaste.CodeInvalid, "not found"},
	"view":           {func(m *Mapping) { m.Table = "seen" }, "table", posthaste.CodeInvalid, "is not a table"},
	"unknown column": {func(m *Mapping) { m.Key = "customer" }, "key", posthaste.CodeInvalid, "it has id, topic, body, sent, due, due_tz"},
	"payload":        {func(m *Mapping) { m.Payload = "id" }, "payload", posthaste.CodeInvalid, "of type bigint"},
	"headers":        {func(m *Mapping) { m.Headers = "topic" }, "headers", posthaste.CodeInvalid, "of type text"},
	"sent":           {func(m *Mapping) { m.Sent = "topic" }, "sent", posthaste.CodeInvalid, "--sent-value"},
	"sent value":     {func(m *Mapping) { m.SentValue = "perhaps" }, "sent-value", posthaste.CodeInvalid, "perhaps"},
	"neither":        {func(m *Mapping) { m.Sent = "" }, "sent", posthaste.CodeInvalid, "--delete"},
	"two queues":     {func(m *Mapping) { m.QueueColumn = "topic" }, "queue", posthaste.CodeInvalid, "either"},
	"unknown queue":  {func(m *Mapping) { m.Queue = "nowhere" }, "queue", posthaste.CodeNotFound, "posthaste queue create nowhere"},
	"a row's queue":  {func(m *Mapping) { m.Queue, m.QueueColumn = "", "topic" }, "queue", posthaste.CodeNotFound, "posthaste queue create nowhere"},
	"where":          {func(m *Mapping) { m.Where = "sent = 7" }, "where", posthaste.CodeInvalid, "boolean = integer"},
	"two statements": {func(m *Mapping) { m.Where = "true); drop table outbox; select (true" }, "where", posthaste.CodeInvalid, ""},
	"time, no zone":  {func(m *Mapping) { m.SendAt = "due" }, "send-at", posthaste.CodeInvalid, "--send-at-zone Europe/Berlin"},
	"no time":        {func(m *Mapping) { m.SendAt = "topic" }, "send-at", posthaste.CodeInvalid, "of type text"},
	"two zones":      {func(m *Mapping) { m.SendAt, m.SendAtZone = "due_tz", "UTC" }, "send-at-zone", posthaste.CodeInvalid, "leave it out"},
	"unknown zone":   {func(m *Mapping) { m.SendAt, m.SendAtZone = "due", "Europe/Berlim" }, "send-at-zone", posthaste.CodeInvalid, "pg_timezone_names"},
	"abbreviation":   {func(m *Mapping) { m.SendAt, m.SendAtZone = "due", "CET+3" }, "send-at-zone", posthaste.CodeInvalid, "pg_timezone_names"},
	"zone of what":   {func(m *Mapping) { m.SendAtZone = "UTC" }, "send-at-zone", posthaste.CodeInvalid, "requires --send-at"},
	"not unique":     {func(m *Mapping) { m.ID = "topic" }, "id", posthaste.CodeInvalid, "unique index"},
}

// Invalid options are rejected before anything is written, with the flag.
func TestRefusals(t *testing.T) {
	t.Parallel()
	ctx := newContext(t)
	conn := connect(t, ctx, database(t))
	exec(t, ctx, conn, plain+"; alter table outbox add due timestamp, add due_tz timestamptz; create view seen as select * from outbox; insert into outbox (body, topic) values ('1', 'nowhere')")
	exec(t, ctx, conn, "select posthaste.create_queue('events')")
	for name, c := range invalidMappings {
		m := plainMapping()
		c.change(&m)
		_, err := Open(ctx, conn, m)
		for _, one := range unwrapAll(err) {
			err = one
		}
		var e *posthaste.Error
		if !errors.As(err, &e) || e.Code != c.code || e.Field != c.field || !strings.Contains(e.Message+" "+e.Hint, c.says) {
			t.Errorf("%s: %#v, want %s of %s with %q", name, err, c.code, c.field, c.says)
		}
	}
	role := fmt.Sprintf("other_%d", rand.Uint32())
	exec(t, ctx, conn, "create role "+role)
	t.Cleanup(func() {
		_, _ = conn.Exec(context.Background(), "reset role; drop owned by "+role+"; drop role "+role)
	})
	exec(t, ctx, conn, "grant usage on schema posthaste to "+role)
	exec(t, ctx, conn, "set role "+role)
	for _, grant := range []string{"grant select, update on outbox to " + role, "grant posthaste_sender to " + role} {
		_, err := Open(ctx, conn, plainMapping())
		var e *posthaste.Error
		if !errors.As(err, &e) || e.Code != posthaste.CodeDenied || !strings.Contains(e.Hint, "grant") {
			t.Errorf("before %s: %v", grant, err)
		}
		exec(t, ctx, conn, "reset role")
		exec(t, ctx, conn, grant)
		exec(t, ctx, conn, "set role "+role)
	}
	table, err := Open(ctx, conn, plainMapping())
	if err != nil {
		t.Fatal(err)
	}
	if err = table.InstallTrigger(ctx, 0); posthaste.CodeOf(err) != posthaste.CodeDenied {
		t.Errorf("a trigger on another's table: %v", err)
	}
}

func unwrapAll(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}
