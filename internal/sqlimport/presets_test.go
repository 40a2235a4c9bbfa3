//go:build unix

package sqlimport

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/postgres"
)

// patience bounds the waits of tests.
const patience = 3 * time.Minute

// jobs are a product's jobs for tests: one in each state, in its own tables.
type jobs struct {
	preset string // if it is not the name
	insert string
	// messages are what the waiting ones become, see [summary].
	messages []string
	// held counts the running ones, and left is the table.
	held int
	left string
	// rest is how many rows of left stay.
	rest int
}

var products = map[string]jobs{
	"river": {
		insert: `insert into river_job (state, kind, args, queue, priority, max_attempts, attempt, attempted_at, scheduled_at, finalized_at, tags, metadata, errors) values
			('available', 'invoice', '{"order": 12345678901234567890}', 'default', 1, 25, 0, null, now(), null, '{}', '{}', null),
			('scheduled', 'review', '{"order": 2}', 'default', 3, 2000, 0, null, '2999-01-01T00:00:00Z', null, '{x,y}', '{"tenant": "ada", "n": {"a": 1}}', null),
			('retryable', 'ship', '{"order": 3}', 'shipping', 1, 5, 2, now(), '2999-01-01T00:00:00Z', null, '{}', '{}', array['{"error": "first"}', '{"error": "busy"}']::jsonb[]),
			('running', 'ship', '{"order": 4}', 'shipping', 1, 5, 1, now(), now(), null, '{}', '{}', null),
			('pending', 'ship', '{"order": 5}', 'shipping', 1, 5, 1, now(), now(), null, '{}', '{}', null),
			('completed', 'ship', '{"order": 6}', 'shipping', 1, 5, 1, now(), now(), now(), '{}', '{}', null),
			('discarded', 'ship', '{"order": 7}', 'shipping', 1, 5, 1, now(), now(), now(), '{}', '{}', null)`,
		messages: []string{
			`default invoice "" 1 [] application/json {"order": 12345678901234567890} ready 0 25 import-queue=default`,
			`default review "" 2 [x y] application/json {"order": 2} scheduled 2999 1000 import-queue=default n={"a": 1} tenant=ada`,
			`shipping ship "" 3 [] application/json {"order": 3} scheduled 2999 3 error=busy import-queue=shipping retry-count=2`,
		},
		held: 2, left: "river_job", rest: 4,
	},
	"oban": {
		insert: `insert into oban_jobs (state, worker, args, queue, priority, max_attempts, attempt, scheduled_at, tags, meta, errors) values
			('available', 'Shop.Invoice', '{"order": 1}', 'default', 9, 20, 0, timezone('UTC', now()), '{}', '{}', '{}'),
			('scheduled', 'Shop.Review', '{"order": 2}', 'default', 0, 20, 0, '2999-01-01T00:00:00', '{x}', '{"tenant": "ada"}', '{}'),
			('retryable', 'Shop.Ship', '{"order": 3}', 'shipping', 0, 20, 19, '2999-01-01T00:00:00', '{}', '{}', array['{"error": "busy"}']::jsonb[]),
			('executing', 'Shop.Ship', '{"order": 4}', 'shipping', 0, 20, 1, timezone('UTC', now()), '{}', '{}', '{}'),
			('suspended', 'Shop.Ship', '{"order": 5}', 'shipping', 0, 20, 1, timezone('UTC', now()), '{}', '{}', '{}'),
			('cancelled', 'Shop.Ship', '{"order": 6}', 'shipping', 0, 20, 1, timezone('UTC', now()), '{}', '{}', '{}')`,
		messages: []string{
			`default Shop.Invoice "" 1 [] application/json {"order": 1} ready 0 20 import-queue=default`,
			`default Shop.Review "" 2 [x] application/json {"order": 2} scheduled 2999 20 import-queue=default tenant=ada`,
			`shipping Shop.Ship "" 3 [] application/json {"order": 3} scheduled 2999 1 error=busy import-queue=shipping retry-count=19`,
		},
		held: 2, left: "oban_jobs", rest: 3,
	},
	"oban-python": {
		preset: "oban",
		insert: `insert into oban_jobs (state, worker, args, priority, attempt, scheduled_at, tags, meta, errors) values
			('available', 'shop.Invoice', '{"order": 1}', 9, 0, timezone('UTC', now()), '{}', '{}', '[]'),
			('scheduled', 'shop.Review', '{"order": 2}', 0, 0, '2999-01-01T00:00:00', '{x}', '{"tenant": "ada"}', '[]'),
			('retryable', 'shop.Ship', '{"order": 3}', 0, 2, '2999-01-01T00:00:00', '{}', '{}', '[{"error": "late"}, {"error": "busy"}]'),
			('executing', 'shop.Ship', '{"order": 4}', 0, 1, timezone('UTC', now()), '{}', '{}', '[]'),
			('discarded', 'shop.Ship', '{"order": 5}', 0, 20, timezone('UTC', now()), '{}', '{}', '[{"error": "busy"}]')`,
		messages: []string{
			`default shop.Invoice "" 1 [] application/json {"order": 1} ready 0 20 import-queue=default`,
			`default shop.Review "" 2 [x] application/json {"order": 2} scheduled 2999 20 import-queue=default tenant=ada`,
			`default shop.Ship "" 3 [] application/json {"order": 3} scheduled 2999 18 error=busy import-queue=default retry-count=2`,
		},
		held: 1, left: "oban_jobs", rest: 2,
	},
	"pg-boss": {
		insert: `insert into pgboss.queue (name, policy, retry_limit, retry_delay, retry_backoff, expire_seconds, retention_seconds, deletion_seconds, partition, table_name)
			select q, 'standard', 2, 0, false, 900, 1209600, 604800, false, 'job_common' from unnest('{default,shipping}'::text[]) q;
			insert into pgboss.job (id, name, priority, data, state, retry_limit, retry_count, singleton_key, group_id, start_after, output, policy, blocked, blocking) values
			('00000000-0000-0000-0000-000000000001', 'default', 0, '{"order": 1}', 'created', 2, 0, null, null, now(), null, 'standard', false, false),
			('00000000-0000-0000-0000-000000000002', 'default', 5, null, 'created', 2, 0, 'once', 'ada', '2999-01-01T00:00:00Z', null, 'standard', false, false),
			('00000000-0000-0000-0000-000000000001', 'shipping', 0, '{"order": 3}', 'retry', 2, 1, 'eve', null, '2999-01-01T00:00:00Z', '{"message": "busy"}', 'key_strict_fifo', false, false),
			('00000000-0000-0000-0000-000000000004', 'shipping', 0, '{"order": 4}', 'active', 2, 0, null, null, now(), null, 'standard', false, false),
			('00000000-0000-0000-0000-000000000005', 'shipping', 0, '{"order": 5}', 'created', 2, 0, null, null, now(), null, 'standard', true, false),
			('00000000-0000-0000-0000-000000000006', 'shipping', 0, '{"order": 6}', 'created', 2, 0, null, null, now(), null, 'standard', false, true),
			('00000000-0000-0000-0000-000000000007', 'shipping', 0, '{"order": 7}', 'failed', 2, 2, null, null, now(), null, 'standard', false, false)`,
		messages: []string{
			`default default "" 00000000-0000-0000-0000-000000000001 [] application/json {"order": 1} ready 0 3 import-queue=default`,
			`default default "ada" 00000000-0000-0000-0000-000000000002 [] application/json null scheduled 2999 3 import-queue=default singleton-key=once`,
			`shipping shipping "eve" 00000000-0000-0000-0000-000000000001 [] application/json {"order": 3} scheduled 2999 1 error=busy import-queue=shipping retry-count=2 singleton-key=eve`,
		},
		held: 3, left: "pgboss.job", rest: 4,
	},
	"graphile-worker": {
		insert: `insert into graphile_worker._private_tasks (id, identifier) values (1, 'invoice'), (2, 'ship');
			insert into graphile_worker._private_job_queues (id, queue_name) values (1, 'ada');
			insert into graphile_worker._private_jobs (id, job_queue_id, task_id, payload, priority, run_at, attempts, max_attempts, last_error, key, locked_at) values
			(1, null, 1, '{"order": 1.0}', 0, now(), 0, 25, null, null, null),
			(2, 1, 2, '{"order": 2}', -5, '2999-01-01T00:00:00Z', 3, 25, 'busy', 'ship-2', null),
			(3, null, 2, '{"order": 3}', 9, '2999-01-01T00:00:00Z', 0, 25, null, null, null),
			(4, null, 2, '{"order": 4}', 0, now(), 1, 1, null, null, now()),
			(5, null, 2, '{"order": 5}', 0, now(), 25, 25, 'gone', null, null)`,
		messages: []string{
			`default invoice "" 1 [] application/json {"order": 1.0} ready 0 25 import-queue=default`,
			`default ship "ada" 2 [] application/json {"order": 2} scheduled 2999 22 error=busy import-queue=default retry-count=3`,
			`default ship "" 3 [] application/json {"order": 3} scheduled 2999 25 import-queue=default`,
		},
		held: 1, left: "graphile_worker._private_jobs", rest: 2,
	},
	"pgmq": {
		insert: `insert into pgmq.meta (queue_name, is_partitioned, is_unlogged) values ('mail', false, false);
			insert into pgmq.q_mail (msg_id, read_ct, vt, message, headers) values
			(1, 0, now(), '{"order": 1}', null), (2, 0, '2999-01-01T00:00:00Z', '{"order": 2}', '{"x-pgmq-group": "ada", "trace": 1}'),
			(3, 2, now(), '{"order": 3}', null), (4, 1, '2999-01-01T00:00:00Z', '{"order": 4}', null)`,
		messages: []string{
			`mail  "" 1 [] application/json {"order": 1} ready 0 0 import-queue=mail`,
			`mail  "ada" 2 [] application/json {"order": 2} scheduled 2999 0 import-queue=mail trace=1 x-pgmq-group=ada`,
			`mail  "" 3 [] application/json {"order": 3} ready 0 0 import-queue=mail retry-count=2`,
		},
		held: 1, left: "pgmq.q_mail", rest: 1,
	},
}

// Each preset imports the jobs that wait and leaves the others, inside a database and to another.
func TestPresets(t *testing.T) {
	t.Parallel()
	for _, preset := range Presets() {
		if _, ok := products[preset]; !ok {
			t.Errorf("there are no jobs of %s", preset)
		}
	}
	for name, product := range products {
		preset := cmp.Or(product.preset, name)
		for _, same := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/same=%t", name, same), func(t *testing.T) {
				t.Parallel()
				p := newProduct(t, name, same)
				p.exec(product.insert)
				for _, dry := range []bool{true, false} {
					report := p.imports(Options{Preset: preset, DryRun: dry})
					want := Report{Found: 3, Imported: 3, Held: product.held}
					if dry {
						want = Report{Found: 3, Left: 3, Held: product.held}
					}
					if report.Found != want.Found || report.Imported != want.Imported || report.Left != want.Left || report.Held != want.Held || len(report.Refused) > 0 || report.Known > 0 {
						t.Errorf("dry run %t: the report is %+v, want %+v", dry, report, want)
					}
				}
				if got := p.messages(); !slices.Equal(got, slices.Sorted(slices.Values(product.messages))) {
					t.Errorf("the messages are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(product.messages, "\n"))
				}
				if n := p.number("select count(*) from " + product.left); n != product.rest {
					t.Errorf("%d jobs stay, want %d", n, product.rest)
				}
				if report := p.imports(Options{Preset: preset, Held: true}); report.Imported == 0 || report.Left > 0 {
					t.Errorf("with held jobs the report is %+v", report)
				}
			})
		}
	}
}

// place is a database with the jobs of a product, and the engine with the queues.
type place struct {
	*testing.T
	ctx    context.Context
	conn   *pgx.Conn
	engine *postgres.Engine
	same   bool
	url    string // of the jobs
	queues string // URL of the queues
}

// newProduct returns a place with the tables of a product and the queues of its jobs.
func newProduct(t *testing.T, name string, same bool) *place {
	t.Helper()
	tables, err := os.ReadFile("testdata/" + name + ".sql")
	if err != nil {
		t.Fatal(err)
	}
	p := newPlace(t, same)
	p.exec(string(tables))
	return p
}

func newPlace(t *testing.T, same bool) *place {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	p := &place{T: t, ctx: ctx, same: same, queues: testpg.New(t)}
	p.url = p.queues
	if !same {
		p.url = testpg.Empty(t)
	}
	p.url = testpg.InPublic(t, p.url)
	var err error
	if p.conn, err = postgres.Connect(ctx, p.url, postgres.WithPollingOnly()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.conn.Close(context.Background()) })
	if p.engine, err = postgres.Open(ctx, p.queues, postgres.WithPollingOnly()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.engine.Close)
	for _, queue := range []string{"default", "shipping", "mail"} {
		if err := p.engine.CreateQueue(ctx, queue, posthaste.QueueOptions{MaxPayload: 1024}); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p *place) exec(sql string) {
	p.Helper()
	if _, err := p.conn.Exec(p.ctx, sql); err != nil {
		p.Fatalf("%s: %v", sql, err)
	}
}

func (p *place) number(sql string) (n int) {
	p.Helper()
	if err := p.conn.QueryRow(p.ctx, sql).Scan(&n); err != nil {
		p.Fatalf("%s: %v", sql, err)
	}
	return n
}

// imports runs an import that must succeed.
func (p *place) imports(o Options) Report {
	p.Helper()
	o.Same = p.same
	report, err := Import(p.ctx, p.conn, p.engine, o)
	if err != nil {
		p.Fatalf("%+v: %v", o, err)
	}
	return report
}

// messages returns a summary of each message.
func (p *place) messages() (all []string) {
	p.Helper()
	page, err := p.engine.Messages(p.ctx, posthaste.MessageFilter{Limit: 1000})
	if err != nil {
		p.Fatal(err)
	}
	for _, m := range page.Items {
		m, err := p.engine.Message(p.ctx, m.ID)
		if err != nil {
			p.Fatal(err)
		}
		all = append(all, summary(m))
	}
	slices.Sort(all)
	return all
}

// summary returns queue, kind, key, reference, terms, content type, payload, state, year, maximum
// of attempts and headers of a message.
func summary(m posthaste.MessageInfo) string {
	var headers []string
	for name, value := range m.Headers {
		if name != headerCreated {
			headers = append(headers, name+"="+value)
		}
	}
	slices.Sort(headers)
	year := 0
	if due := m.Subscriptions[0].DueAt; !due.IsZero() {
		year = due.UTC().Year()
	}
	return fmt.Sprintf("%s %s %q %s %v %s %s %s %d %d %s", m.Queue, m.Kind, m.Key, m.Reference, m.Terms, cmp.Or(m.ContentType, "-"), m.Payload,
		m.Subscriptions[0].State, year, m.Options.MaxAttempts, strings.Join(headers, " "))
}
