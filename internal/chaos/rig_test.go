//go:build unix

package chaos

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/testpg/testdb"
	ledger "github.com/posthaste-mq/posthaste/sql"
)

func TestMain(m *testing.M) {
	Child()
	os.Exit(m.Run())
}

// shipped builds the program as it is shipped.
var shipped = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "posthaste-chaos-test-")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "posthaste")
	build := exec.Command("go", "build", "-o", program, "./cmd/posthaste")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return program, nil
})

// short is a run of about 20 s: a shorter lease makes rescues quick, and
// the bounds of time are those of machines that do other things as well.
func short(t *testing.T) Config {
	t.Helper()
	program, err := shipped()
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(rand.Uint32())
	if s := os.Getenv("POSTHASTE_TEST_SEED"); s != "" {
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d", seed)
	dir := t.TempDir()
	// PostgreSQL's user must get through to its data.
	for d := dir; len(d) > len(os.TempDir()); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return Config{Program: program, Dir: dir, Duration: 20 * time.Second, Seed: seed, Lease: 5 * time.Second, Rate: 150,
		Postgres: testdb.Config(testdb.Version(t)), Slack: time.Minute,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
}

func run(t *testing.T, c Config) *Verdict {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	v, err := Run(ctx, c)
	if err != nil {
		words, _ := os.ReadFile(filepath.Join(c.Dir, "words.log"))
		t.Fatalf("%v\n%s", err, words)
	}
	v.Report(t.Output())
	return v
}

// A worker, a sender and PostgreSQL are killed, and connections cut, each in the
// middle of something; every promise is kept.
func TestShortRun(t *testing.T) {
	t.Parallel()
	v := run(t, short(t))
	for _, broken := range v.Violations {
		t.Error(broken)
	}
}

// A deliberately broken build is found within a minute: what a killed worker held
// is not handed out anew.
func TestBrokenBuildIsFound(t *testing.T) {
	t.Parallel()
	const file = "functions/finish.sql"
	const from, to = "where z.became in ('retried', 'lost', 'released') and v_kept and not q.keyed", "where z.became in ('retried', 'released') and v_kept and not q.keyed"
	text, err := fs.ReadFile(ledger.Files, file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(text), from) != 1 {
		t.Fatalf("%s does not hold %q once: move the patch to where that is now", file, from)
	}
	c := short(t)
	c.Duration, c.Kinds = 16*time.Second, []Fault{KillWorker}
	c.Slack = 0 // what is lost need not be waited for
	c.Sabotage = strings.Replace(string(text), from, to, 1)
	if v := run(t, c); !v.Broke(Lost) {
		t.Errorf("found %v", v.Violations)
	}
}
