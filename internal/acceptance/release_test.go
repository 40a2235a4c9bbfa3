//go:build unix

package acceptance

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/postgres"
)

// supported are the tags, or before the first release a commit, from which an upgrade without
// stopping is tested: the newest release of each minor version that may be upgraded directly.
// Before 0.1.0 the schema may change without a migration. Such a change moves the commit.
const supported = "925883650fdbf02998ebfd6fdaffa2595d2e035b"

// upgradeEnv names other tags or commits, comma-separated.
const upgradeEnv = "POSTHASTE_TEST_UPGRADE_FROM"

// Processes of an older release send and work while the schema is migrated, and beside processes
// of this version afterwards, until they are replaced one by one. No message is lost, none is
// handled twice, and no send fails. The older release is built from its commit.
func TestUpgradeFromRelease(t *testing.T) {
	testrun.Nightly(t, "it builds an older release")
	for from := range strings.SplitSeq(cmp.Or(os.Getenv(upgradeEnv), supported), ",") {
		t.Run(from, func(t *testing.T) {
			old := checkOut(t, from)
			testrun.Timed(t, answerTime, func() (fault string) { return upgraded(t, old) })
		})
	}
}

// earlier is an older release: its program, and its processes of this package.
type earlier struct{ program, children string }

// checkOut builds an older release.
func checkOut(t *testing.T, commit string) earlier {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	if err := os.Mkdir(source, 0o755); err != nil {
		t.Fatal(err)
	}
	old := earlier{filepath.Join(dir, "posthaste"), filepath.Join(dir, "children")}
	for _, step := range []struct {
		dir     string
		command []string
	}{
		{"../..", []string{"git", "archive", "--format=tar", "--output", filepath.Join(dir, "source.tar"), commit}},
		{source, []string{"tar", "-xf", "../source.tar"}},
		{source, []string{"go", "build", "-trimpath", "-ldflags", "-X github.com/posthaste-mq/posthaste/internal/cli.Version=" + commit, "-o", old.program, "./cmd/posthaste"}},
		{source, []string{"go", "test", "-trimpath", "-c", "-o", old.children, "./internal/acceptance"}},
	} {
		cmd := exec.CommandContext(t.Context(), step.command[0], step.command[1:]...)
		cmd.Dir = step.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(step.command, " "), err, out)
		}
	}
	return old
}

// run runs a command of the older program.
func (old earlier) run(s *stage, args ...string) {
	s.Helper()
	cmd := exec.CommandContext(s.ctx, old.program, args...)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+s.url)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.Fatalf("posthaste %s of the older release: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// serve starts a server of the older program, and returns its address.
func (old earlier) serve(s *stage) string {
	s.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	s.must(err)
	address := l.Addr().String()
	s.must(l.Close())
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, old.program, "serve", "--listen", address)
	cmd.Env, cmd.Stderr = append(os.Environ(), "DATABASE_URL="+s.url), s.Output()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	s.must(cmd.Start())
	s.Cleanup(func() {
		stop()
		if err := cmd.Wait(); err != nil && ctx.Err() == nil {
			s.Errorf("the server of the older release ended with %v", err)
		}
	})
	return address
}

// answers reports whether a server answers a request with a status.
func answers(method, url, body string, status int) bool {
	client := http.Client{Timeout: 10 * time.Second}
	request, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return false
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == status
}

func upgraded(t *testing.T, old earlier) (slow string) {
	t.Helper()
	s := closedStage(t, testpg.Empty(t))
	old.run(s, "migrate", "up")
	old.run(s, "queue", "create", "upgraded")
	old.run(s, "queue", "create", "beside")
	address := old.serve(s)
	s.until("the older server is ready", func() bool { return answers("GET", "http://"+address+"/readyz", "", http.StatusOK) })

	c := &crew{stage: s, queue: "upgraded", lease: 30 * time.Second}
	older := func(role string) *child {
		return s.spawn(task{Program: old.children, Role: role, Queue: c.queue, Concurrency: 2, Lease: c.lease, Work: 5 * time.Millisecond})
	}
	c.senders, c.workers = []*child{older("pester"), older("pester")}, []*child{older("worker"), older("worker")}
	c.each(c.senders, history.Sent, 20)
	c.each(c.workers, history.Handled, 20)

	conn, err := pgx.Connect(s.ctx, s.url)
	s.must(err)
	s.must(postgres.Migrate(s.ctx, conn, postgres.MigrateOptions{}))
	s.must(conn.Close(s.ctx))

	// All of the older release continue: what runs, and what starts again.
	c.each(c.senders, history.Sent, 20)
	c.each(c.workers, history.Handled, 20)
	old.run(s, "queue", "ls")
	old.run(s, "migrate", "status")
	if !answers("GET", "http://"+address+"/readyz", "", http.StatusOK) {
		t.Error("the older server is not ready on the newer schema")
	}
	if !answers("POST", "http://"+address+"/v1/queues/beside/messages", `{"payload": 1}`, http.StatusCreated) {
		t.Error("the older server does not send on the newer schema")
	}

	s.reopen()
	c.replace(c.workers, c.worker, history.Handled)
	c.replace(c.senders, c.sender, history.Sent)
	ids, events, slow := c.end()
	if slow != "" {
		return slow
	}
	s.must(history.Exactly(ids, events))
	t.Logf("%d messages during the upgrade", len(ids))
	return ""
}

// replace starts a process beside each given one, and ends that one when both have worked.
func (c *crew) replace(of []*child, start func() *child, kind history.Kind) {
	c.Helper()
	for i, before := range of {
		of[i] = start()
		c.each([]*child{before, of[i]}, kind, 20)
		c.must(before.term())
	}
}
