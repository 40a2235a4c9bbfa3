//go:build unix

package prove

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/internal/devpg"
	"github.com/posthaste-mq/posthaste/internal/testpg/testdb"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/postgres"
)

// TestMain lets this program be the processes of a proof.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "process" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := Child(ctx, os.Stdin, os.Stderr); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

// proveOnce runs a proof of 18 s with a planted bug.
func proveOnce(t *testing.T, sabotage string) *Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	c := testdb.Config(testdb.Version(t))
	c.Ephemeral = true
	pg, err := devpg.Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := pg.Stop(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}()
	conn, err := pgx.Connect(ctx, pg.URL())
	if err != nil {
		t.Fatal(err)
	}
	if err := postgres.Migrate(ctx, conn, postgres.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close(ctx)
	dir := t.TempDir()
	words, err := os.Create(filepath.Join(dir, "words.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer words.Close()
	o := Options{Command: []string{os.Args[0], "process"}, Dir: dir, Database: pg, Duration: 18 * time.Second, Rate: 200, Workers: 3, Seed: 1, Words: words,
		Tell: func(at time.Duration, line string) { t.Logf("%s  %s", at.Round(time.Millisecond), line) }, sabotage: sabotage}
	if sabotage != "" {
		o.patience = 12 * time.Second // lost messages need not be waited for
	}
	r, err := Run(ctx, o)
	if err != nil {
		said, _ := os.ReadFile(words.Name())
		t.Fatalf("%v\n%s", err, said)
	}
	for _, line := range r.Words() {
		t.Log(line)
	}
	return r
}

func TestProofHolds(t *testing.T) {
	testrun.Nightly(t, "half a minute with kills of PostgreSQL; on each change the checker is tested with planted faults")
	r := proveOnce(t, "")
	if !r.Kept() || r.Lost > 0 || len(r.Faults) < 2 || r.Acknowledged < 200 {
		t.Errorf("%d faults, %d acknowledged; broken: %q", len(r.Faults), r.Acknowledged, r.Broken)
	}
}

// TestProofFindsBrokenTwins: the proof fails for programs that are broken on purpose.
func TestProofFindsBrokenTwins(t *testing.T) {
	testrun.Nightly(t, "broken twins of the whole program")
	for _, sabotage := range []string{ackFirst, reportFirst} {
		t.Run(sabotage, func(t *testing.T) {
			if r := proveOnce(t, sabotage); r.Lost == 0 || r.Kept() {
				t.Errorf("a program that %s loses nothing: %+v", sabotage, r)
			}
		})
	}
}
