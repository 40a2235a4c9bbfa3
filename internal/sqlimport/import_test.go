//go:build unix

package sqlimport

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
)

const (
	plain = `create table jobs (id bigint primary key, body text, due timestamptz, token text, sent boolean not null default false);
		insert into jobs (id, body) select n, 'job ' || n from generate_series(1, 10) n`
	plainQuery = "select id, 'default' as queue, body as payload, due as send_at, token as unique_key from jobs where not sent order by id; "
	plainDone  = "update jobs set sent = true where id = any($1)"
)

// A query imports any table, and a repetition nothing.
func TestQuery(t *testing.T) {
	t.Parallel()
	for _, same := range []bool{true, false} {
		p := newPlace(t, same)
		p.exec(plain)
		o := Options{Query: plainQuery, Lock: DefaultLock, Done: plainDone, Batch: 3, Queues: map[string]string{"default": "mail"}}
		report := p.imports(o)
		if want := (Count{From: "default", Queue: "mail", Found: 10, Imported: 10}); !slices.Equal(report.Jobs, []Count{want}) || report.Imported != 10 || report.Known != 0 {
			t.Errorf("the report is %+v", report)
		}
		if got := p.messages(); len(got) != 10 || got[0] != `mail  "" 1 [] text/plain job 1 ready 0 0 import-queue=default` {
			t.Errorf("the messages are %q", got)
		}
		if report := p.imports(o); report.Found != 0 || report.Imported != 0 {
			t.Errorf("the second report is %+v", report)
		}
	}
}

// newConn returns a further connection to the jobs.
func newConn(p *place) *pgx.Conn {
	p.Helper()
	conn, err := pgx.Connect(p.ctx, p.url)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Jobs that a worker has locked stay with it.
func TestLockedJobsStay(t *testing.T) {
	t.Parallel()
	p := newPlace(t, true)
	p.exec(plain)
	worker := newConn(p)
	tx, err := worker.Begin(p.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(p.ctx) //nolint:errcheck // meant
	if _, err := tx.Exec(p.ctx, "select from jobs where id in (1, 5) for update"); err != nil {
		t.Fatal(err)
	}
	if report := p.imports(Options{Query: plainQuery, Lock: DefaultLock, Done: plainDone, Batch: 3}); report.Imported != 8 || report.Left != 2 || len(report.Refused) > 0 {
		t.Errorf("the report is %+v", report)
	}
}

// A job that the ledger rejects stays, is listed, and holds up no other.
func TestRejectedJobsStay(t *testing.T) {
	t.Parallel()
	for _, same := range []bool{true, false} {
		p := newPlace(t, same)
		p.exec(plain)
		p.exec(`update jobs set body = repeat('x', 2000) where id in (2, 3); update jobs set due = 'infinity' where id = 7`)
		report := p.imports(Options{Query: plainQuery, Lock: DefaultLock, Done: plainDone, Batch: 4})
		var refused []string
		for _, x := range report.Refused {
			refused = append(refused, x.ID)
		}
		if slices.Sort(refused); !slices.Equal(refused, []string{"2", "3", "7"}) || report.Imported != 7 || report.Left != 3 || report.Known != 0 {
			t.Errorf("the report is %+v", report)
		}
		if n := len(p.messages()); n != 7 {
			t.Errorf("%d messages, want 7", n)
		}
	}
}

// Unique keys are those of messages, inside a database. A job whose key is held stays.
func TestUniqueKeys(t *testing.T) {
	t.Parallel()
	p := newPlace(t, true)
	p.exec(plain + `; update jobs set token = 't' where id in (4, 8)`)
	if _, err := p.engine.Send(p.ctx, posthaste.Message{Queue: "default", Payload: 1, Unique: &posthaste.Unique{Key: "u"}}); err != nil {
		t.Fatal(err)
	}
	p.exec(`update jobs set token = 'u' where id = 9`)
	report := p.imports(Options{Query: plainQuery, Lock: DefaultLock, Done: plainDone})
	if report.Imported != 8 || report.Left != 2 || len(report.Refused) != 2 || !strings.Contains(report.Refused[0].Error, `its unique key "t"`) {
		t.Errorf("the report is %+v", report)
	}
	if sent, err := p.engine.Send(p.ctx, posthaste.Message{Queue: "default", Payload: 1, Unique: &posthaste.Unique{Key: "t"}}); err != nil || !sent[0].Duplicate {
		t.Errorf("a further message with an imported unique key is %+v, %v", sent, err)
	}
}

// A repetition recognizes the messages in another database although the jobs are still there, also
// if another database has jobs with the same ids.
func TestRepetitionIsRecognized(t *testing.T) {
	t.Parallel()
	p := newPlace(t, false)
	p.exec(plain)
	o := Options{Query: plainQuery, Lock: DefaultLock, Done: plainDone, Batch: 4}
	p.imports(o)
	p.exec("update jobs set sent = false where id <= 5") // as if their transactions had not committed
	if report := p.imports(o); report.Imported != 5 || report.Known != 5 || report.Left != 0 {
		t.Errorf("the report is %+v", report)
	}
	other := newPlace(t, false)
	other.engine = p.engine
	other.exec(plain)
	if report := other.imports(o); report.Imported != 10 || report.Known != 0 {
		t.Errorf("from another database the report is %+v", report)
	}
	if n := len(p.messages()); n != 20 {
		t.Errorf("%d messages, want 20", n)
	}
}

// Mistakes are reported before anything is sent.
func TestMistakes(t *testing.T) {
	t.Parallel()
	p := newPlace(t, true)
	p.exec(plain)
	p.exec("create table twice (id int, body jsonb); insert into twice values (1, '1'), (1, '2'), (2, '3')")
	for text, o := range map[string]Options{
		`unknown column "body"; expected id, queue`:     {Query: "select * from jobs", Lock: DefaultLock, Done: plainDone},
		`it has no column "payload"`:                    {Query: "select id from jobs", Lock: DefaultLock, Done: plainDone},
		`column "payload" is of type boolean; expected`: {Query: "select id, sent as payload from jobs", Lock: DefaultLock, Done: plainDone},
		`column "send_at" is of type timestamp without`: {Query: "select id, body as payload, localtimestamp as send_at from jobs", Lock: DefaultLock, Done: plainDone},
		"syntax error":                                    {Query: "select id from", Lock: DefaultLock, Done: plainDone},
		"--query selects them again":                      {Query: "select id, 'mail' as queue, body as payload from jobs", Lock: DefaultLock, Done: plainDone},
		"10 jobs were to be deleted or marked and 0 were": {Query: plainQuery, Lock: DefaultLock, Done: plainDone + " and false"},
		"3 jobs were to be deleted or marked and":         {Query: "select id, 'mail' as queue, body as payload from twice", Lock: DefaultLock, Done: "delete from twice where id = any($1) and body <> '2'"},
		`queue "nowhere" does not exist`:                  {Query: plainQuery, Lock: DefaultLock, Done: plainDone, Queue: "nowhere"},
		`"No where" is not a possible name of a queue`:    {Query: plainQuery, Lock: DefaultLock, Done: plainDone, Queue: "No where"},
		"the queue is unknown":                            {Query: "select id, body as payload from jobs", Lock: DefaultLock, Done: plainDone},
		`table "elsewhere"."river_job" not found`:         {Preset: "river", Schema: "elsewhere"},
		"table river_job not found":                       {Preset: "river"},
		`unknown preset "rivers"; expected one of`:        {Preset: "rivers"},
		"a job cannot be read":                            {Query: "select nullif(id, 3) as id, 'mail' as queue, body as payload from jobs where not sent", Lock: DefaultLock, Done: plainDone},
		"invalid input syntax for type integer":           {Query: "select id, 'mail' as queue, body as payload, body as priority from jobs", Lock: DefaultLock, Done: plainDone},
	} {
		o.Same = true
		if _, err := Import(p.ctx, p.conn, p.engine, o); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%+v: %v, want %q", o, err, text)
		}
	}
	if n := len(p.messages()); n != 0 {
		t.Errorf("%d messages were sent", n)
	}
}

// An error of an expression is one of the user's, and says what to check.
func TestErrorsHaveHints(t *testing.T) {
	t.Parallel()
	p := newPlace(t, true)
	p.exec(plain)
	p.exec("create role " + role + " login password 'secret'; grant usage on schema public to " + role)
	defer p.exec("drop owned by " + role + "; drop role " + role)
	p.exec("set role " + role)
	_, err := Import(p.ctx, p.conn, p.engine, Options{Same: true, Query: plainQuery, Lock: DefaultLock, Done: plainDone})
	p.exec("reset role")
	if posthaste.CodeOf(err) != posthaste.CodeDenied || !strings.Contains(fmt.Sprint(err), "permission denied for table jobs") {
		t.Errorf("without privileges: %v", err)
	}
}

const role = "sqlimport_stranger"
