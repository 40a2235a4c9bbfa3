//go:build unix

package cli_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// killedJobs are the jobs of TestDR3, by preset: a statement that inserts $1 of them, and the table
// in which they are.
var killedJobs = map[string]struct{ insert, table string }{
	"river": {"insert into river_job (kind, args, queue, state, scheduled_at) select 'ship', to_jsonb(n), 'jobs', 'scheduled', now() + interval '1 day' from generate_series(1, $1::int) n", "river_job"},
	"oban":  {"insert into oban_jobs (worker, args, queue) select 'ship', to_jsonb(n), 'jobs' from generate_series(1, $1::int) n", "oban_jobs"},
	"pg-boss": {`with q as (insert into pgboss.queue (name, policy, retry_limit, retry_delay, retry_backoff, expire_seconds, retention_seconds, deletion_seconds, partition, table_name)
		values ('jobs', 'standard', 2, 0, false, 900, 1209600, 604800, false, 'job_common'))
		insert into pgboss.job (name, data) select 'jobs', to_jsonb(n) from generate_series(1, $1::int) n`, "pgboss.job"},
	"graphile-worker": {`with t as (insert into graphile_worker._private_tasks (id, identifier) values (1, 'ship'))
		insert into graphile_worker._private_jobs (task_id, payload) select 1, to_json(n) from generate_series(1, $1::int) n`, "graphile_worker._private_jobs"},
	"pgmq": {"with q as (insert into pgmq.meta (queue_name, is_partitioned, is_unlogged) values ('jobs', false, false)) insert into pgmq.q_jobs (vt, message) select now(), to_jsonb(n) from generate_series(1, $1::int) n", "pgmq.q_jobs"},
}

// TestDR3_ImportersKilled: an import that is killed at random points, 20 at night, by its process or by its
// connections, imports each job once: inside a database and to another.
func TestDR3_ImportersKilled(t *testing.T) {
	t.Parallel()
	for preset := range killedJobs {
		for _, same := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/same=%t", preset, same), func(t *testing.T) {
				t.Parallel()
				if preset != "river" {
					testrun.Nightly(t, "the same code imports the jobs of River on each change")
				}
				k := newKilledImport(t, preset, same)
				kills := 8 // a busy machine kills late, and the jobs must last
				if testrun.Night() {
					kills = 20
				}
				for n := 0; n < kills; {
					if k.killed(n%2 == 1) {
						n++
					}
				}
				k.ends()
			})
		}
	}
}

// killedImport is an import that is killed and repeated.
type killedImport struct {
	*testing.T
	ctx    context.Context
	conn   *pgx.Conn // to the jobs
	queues *pgx.Conn
	table  string
	jobs   int
	args   []string
}

func newKilledImport(t *testing.T, preset string, same bool) *killedImport {
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	t.Cleanup(cancel)
	connect := func(url string) *pgx.Conn {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	to := testpg.InPublic(t, testpg.New(t))
	from, args := to, []string{"import", "sql", "--preset", preset, "--queue", "jobs", "--batch", "5", "--database-url", to}
	if !same {
		from = testpg.InPublic(t, testpg.Empty(t))
		args = append(args, "--from", from)
	}
	k := &killedImport{T: t, ctx: ctx, conn: connect(from), queues: connect(to), table: killedJobs[preset].table, jobs: 10_000, args: args}
	tables, err := os.ReadFile("../sqlimport/testdata/" + preset + ".sql")
	if err != nil {
		t.Fatal(err)
	}
	insert := strings.ReplaceAll(killedJobs[preset].insert, "$1", fmt.Sprint(k.jobs))
	// A commit that deletes jobs is slow, so that many kills happen during it.
	slow := fmt.Sprintf(`create function public.slow() returns trigger language plpgsql as 'begin perform pg_sleep(0.005); return null; end';
		create constraint trigger slow after delete on %s deferrable initially deferred for each row execute function public.slow()`, k.table)
	for _, sql := range []string{strings.ReplaceAll(string(tables), "q_mail", "q_jobs"), insert, slow} {
		if _, err := k.conn.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	if _, err := k.queues.Exec(ctx, "select posthaste.create_queue('jobs')"); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *killedImport) number(conn *pgx.Conn, sql string) (n int) {
	k.Helper()
	if err := conn.QueryRow(k.ctx, sql).Scan(&n); err != nil {
		k.Fatalf("%s: %v", sql, err)
	}
	return n
}

// killed starts an import and kills it at a random time after it has imported a job, and reports
// whether it was still running. With connections it kills those, and not the process.
func (k *killedImport) killed(connections bool) bool {
	before := k.number(k.conn, "select count(*) from "+k.table)
	if before == 0 {
		k.Fatal("all jobs were imported before the import was killed often enough")
	}
	p := start(k.T, k.TempDir(), nil, k.args...)
	eventually(k.T, "the import takes jobs", func() error {
		if n := k.number(k.conn, "select count(*) from "+k.table); n < before {
			return nil
		}
		return context.DeadlineExceeded
	})
	testrun.Pause(time.Duration(rand.IntN(100_000)) * time.Microsecond)
	if connections {
		eventually(k.T, "the import has connections", func() error { // the jobs may have been taken by the previous one's last commit
			if k.number(k.conn, "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() and application_name <> ''") > 0 {
				return nil
			}
			return context.DeadlineExceeded
		})
		k.number(k.queues, "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() and application_name <> ''")
		return p.wait() == 3
	}
	_ = p.Process.Signal(syscall.SIGKILL) // it can have ended already
	return p.wait() == -1
}

// ends repeats the import until its end, and compares jobs and messages.
func (k *killedImport) ends() {
	k.Helper()
	if _, err := k.conn.Exec(k.ctx, "drop trigger slow on "+k.table); err != nil {
		k.Fatal(err)
	}
	stdout, stderr, code := run(k.T, k.TempDir(), append(k.args, "--batch", "500")...)
	left, messages, distinct := k.number(k.conn, "select count(*) from "+k.table), k.number(k.queues, "select count(*) from posthaste.messages"),
		k.number(k.queues, "select count(distinct convert_from(payload, 'UTF8')::int) from posthaste.messages")
	if code != 0 || left != 0 || messages != k.jobs || distinct != k.jobs {
		k.Errorf("of %d jobs %d are left, and there are %d messages, %d of them distinct; exit code %d: %s%s", k.jobs, left, messages, distinct, code, stdout, stderr)
	}
	k.Logf("%s", stdout)
}
