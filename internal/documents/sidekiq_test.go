//go:build unix

package documents_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// TestSidekiqMigration imports jobs that a real Sidekiq wrote: those of the programs in
// docs/migrate/sidekiq.md, which run before and after, and jobs in each of Sidekiq's sets.
func TestSidekiqMigration(t *testing.T) {
	t.Parallel()
	testrun.Nightly(t, "needs Ruby and Sidekiq; jobs in the formats of Sidekiq are imported on each change")
	ctx, cancel := context.WithTimeout(t.Context(), 10*patience)
	defer cancel()
	if out, err := exec.CommandContext(ctx, filepath.Join(root, "scripts", "ruby")).CombinedOutput(); err != nil {
		t.Fatalf("scripts/ruby: %v\n%s", err, out)
	}
	program := buildProgram(t)
	t.Run("shop", func(t *testing.T) {
		t.Parallel()
		newSidekiq(t, program).shop(t)
	})
	t.Run("sets", func(t *testing.T) {
		t.Parallel()
		newSidekiq(t, program).sets(t)
	})
}

// sidekiq is a Redis for Sidekiq and a database for Posthaste.
type sidekiq struct {
	program, url, redis string
	client              *goredis.Client
}

func newSidekiq(t *testing.T, program string) *sidekiq {
	t.Helper()
	r, err := devbroker.StartRedis(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	client := goredis.NewClient(&goredis.Options{Addr: r.Address()})
	t.Cleanup(func() { client.Close() })
	url := testpg.InPublic(t, testpg.New(t))
	psql(t, url, read(t, migrations+"/setup.sql"))
	return &sidekiq{program: program, url: url, redis: r.URL() + "/0", client: client}
}

// run runs a command in a folder and returns its standard output.
func (s *sidekiq) run(t *testing.T, folder string, command ...string) string {
	t.Helper()
	return runMigration(t, filepath.Join(root, folder), s.url, command, "REDIS_URL="+s.redis, "POSTHASTE_ENGINE=postgres")
}

// work runs Sidekiq in a folder until done, stops it gracefully and returns its output. It waits
// 5 s for jobs that run; with less than 2 s, Sidekiq can lose one that an idle thread fetches.
func (s *sidekiq) work(t *testing.T, folder, what string, done func() bool) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sidekiq", "-r", "./jobs.rb", "-c", "4", "-t", "5")
	cmd.Dir = filepath.Join(root, folder)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+s.url, "REDIS_URL="+s.redis)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	happened := testrun.Happens(patience, func() bool { return len(ended) > 0 || done() })
	if len(ended) > 0 {
		t.Fatalf("Sidekiq ended: %v\n%s", <-ended, out.String())
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || !happened {
		t.Fatalf("Sidekiq: %s: %t, %v\n%s", what, happened, err, out.String())
	}
	return out.String()
}

// shop runs the programs of the page.
func (s *sidekiq) shop(t *testing.T) {
	const folder = migrations + "/sidekiq/"
	conn, err := pgx.Connect(t.Context(), s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if version := "Sidekiq " + s.run(t, "", "ruby", "-r", "sidekiq", "-e", "print Sidekiq::VERSION"); !strings.Contains(read(t, "docs/migrate/sidekiq.md"), version) {
		t.Errorf("docs/migrate/sidekiq.md names another version than %s", version)
	}
	s.run(t, folder+"before", "ruby", "order.rb")
	printed := s.work(t, folder+"before", "order 7 is shipped", func() (shipped bool) {
		err := conn.QueryRow(t.Context(), "select shipped from orders where id = 7").Scan(&shipped)
		return err == nil && shipped
	})
	if got := shopLines(printed); got != printsBefore {
		t.Fatalf("the jobs of the program before print\n%swant\n%s", got, printsBefore)
	}
	s.run(t, "", s.program, "queue", "create", "default")
	if got := s.run(t, "", s.program, "import", "sidekiq", "--from", s.redis); !strings.Contains(got, "imported 1 jobs, 0 of them as dead letters") {
		t.Fatalf("the import prints\n%s", got)
	}
	if got := s.run(t, "", s.program, "message", "ls", "--state", "scheduled", "--json"); strings.Count(got, `"id"`) != 1 {
		t.Errorf("the scheduled messages are %s", got)
	}
	psql(t, s.url, "select posthaste.run_message(message_id) from posthaste.messages") // as if the hour had passed
	s.run(t, folder+"after", "ruby", "order.rb")
	if got := shopLines(s.run(t, folder+"after", "ruby", "work.rb")); got != printsAfter {
		t.Errorf("the program after prints\n%swant\n%s", got, printsAfter)
	}
}

// leftJob is a job that waits in Sidekiq, or its message.
type leftJob struct {
	Set, Queue, JID, Kind, Args, Error string
	At                                 float64
	State                              string
}

// jobsInSets are the numbers of jobs that testdata/migrate/sidekiq leaves.
var jobsInSets = map[string]int{"queue default": 2, "queue bulk": 600, "queue Mailers": 5, "schedule bulk": 30, "schedule Mailers": 5, "retry default": 20, "dead default": 10}

// sets imports jobs of all sets, which Sidekiq lists, and compares them with the messages.
func (s *sidekiq) sets(t *testing.T) {
	const folder = "internal/documents/testdata/migrate/sidekiq"
	ctx := t.Context()
	s.run(t, folder, "ruby", "enqueue.rb")
	s.work(t, folder, "all jobs of the queue are fetched, and have failed or run", func() bool {
		return s.client.LLen(ctx, "queue:default").Val() == 0 && s.client.ZCard(ctx, "retry").Val() == 20 && s.client.ZCard(ctx, "dead").Val() == 10
	})
	want := map[string][]leftJob{}
	for line := range strings.Lines(s.run(t, folder, "ruby", "list.rb")) {
		var job leftJob
		if err := json.Unmarshal([]byte(line), &job); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		job.State = map[string]string{"queue": "ready", "dead": "dead"}[job.Set]
		if job.State == "" {
			job.State = "scheduled"
		}
		want[job.Set+" "+job.Queue] = append(want[job.Set+" "+job.Queue], job)
	}
	if got := sizes(want); !maps.Equal(got, jobsInSets) {
		t.Fatalf("Sidekiq has %v, want %v", got, jobsInSets)
	}
	for _, queue := range []string{"default", "bulk", "mail", "dead-jobs"} {
		s.run(t, "", s.program, "queue", "create", queue)
	}
	command := []string{s.program, "import", "sidekiq", "--from", s.redis, "--map", "Mailers=mail", "--dead", "dead-jobs"}
	if got := s.run(t, "", append(command, "--dry-run")...); got != "10 jobs are in Redis: dead\n607 jobs are in Redis: queue\n20 jobs are in Redis: retry\n35 jobs are in Redis: schedule\n" {
		t.Errorf("the dry run prints\n%s", got)
	}
	if got := s.run(t, "", command...); !strings.HasPrefix(got, "imported 672 jobs, 10 of them as dead letters\n0 jobs") {
		t.Errorf("the import prints\n%s", got)
	}
	if left := s.run(t, folder, "ruby", "list.rb"); left != "" {
		t.Errorf("Sidekiq still has\n%s", left)
	}
	got := s.messages(t)
	if sizes := sizes(got); !maps.Equal(sizes, jobsInSets) {
		t.Errorf("the messages are %v, want %v", sizes, jobsInSets)
	}
	for where, jobs := range want {
		for i, job := range jobs {
			if i < len(got[where]) && !sameJob(got[where][i], job) {
				t.Errorf("message %d of %s is\n%+v, want\n%+v", i, where, got[where][i], job)
				break
			}
		}
	}
}

// sizes are the numbers of jobs.
func sizes(jobs map[string][]leftJob) map[string]int {
	n := map[string]int{}
	for where, all := range jobs {
		n[where] = len(all)
	}
	return n
}

// sameJob compares a message with its job. Only the times of waiting jobs become due times.
func sameJob(message, job leftJob) bool {
	due := job.State != "scheduled" || math.Abs(message.At-job.At) < 0.001
	message.At, job.At = 0, 0
	return due && message == job
}

// messages are the imported ones, by set and queue, in the order in which they were sent.
func (s *sidekiq) messages(t *testing.T) map[string][]leftJob {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	rows, err := conn.Query(t.Context(), `
		select headers->>'import-set', headers->>'import-queue', reference, kind, convert_from(payload, 'UTF8'), coalesce(headers->>'error', ''), coalesce(extract(epoch from due_at), 0)::float8, state, queue
		  from posthaste.messages order by message_id`)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]leftJob{}
	var m leftJob
	var queue string
	_, err = pgx.ForEachRow(rows, []any{&m.Set, &m.Queue, &m.JID, &m.Kind, &m.Args, &m.Error, &m.At, &m.State, &queue}, func() error {
		if want := map[string]string{"default": "default", "bulk": "bulk", "Mailers": "mail"}[m.Queue]; m.Set == "dead" && queue != "dead-jobs" || m.Set != "dead" && queue != want {
			return fmt.Errorf("%+v is in the queue %s", m, queue)
		}
		found[m.Set+" "+m.Queue] = append(found[m.Set+" "+m.Queue], m)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
