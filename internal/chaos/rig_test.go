//go:build unix

package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/testpg/testdb"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	ledger "github.com/posthaste-mq/posthaste/sql"
)

func TestMain(m *testing.M) {
	Child()
	os.Exit(m.Run())
}

// shipped builds the shipped program.
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

// short is a run of about 12 s. A shorter lease makes rescues fast, and the bounds of time are
// for busy machines.
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
	// PostgreSQL's user must be able to enter the directories of its data.
	for d := dir; len(d) > len(os.TempDir()); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return Config{Program: program, Dir: dir, Duration: 12 * time.Second, Seed: seed, Lease: 5 * time.Second, Rate: 150,
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

// A worker, a sender and PostgreSQL are killed, and connections cut, each with work in flight.
// Every guarantee holds.
func TestShortRun(t *testing.T) {
	t.Parallel()
	v := run(t, short(t))
	for _, broken := range v.Violations {
		t.Error(broken)
	}
}

// patch breaks a function of the ledger.
type patch struct{ file, from, to string }

// broken returns SQL that installs patched functions.
func broken(t *testing.T, patches ...patch) string {
	t.Helper()
	var names []string
	texts := map[string]string{}
	for _, p := range patches {
		if _, known := texts[p.file]; !known {
			text, err := ledger.Function(p.file)
			if err != nil {
				t.Fatal(err)
			}
			names, texts[p.file] = append(names, p.file), text
		}
		if !strings.Contains(texts[p.file], p.from) {
			t.Fatalf("%s does not hold %q: move the patch to where that is now", p.file, p.from)
		}
		texts[p.file] = strings.ReplaceAll(texts[p.file], p.from, p.to)
	}
	var all strings.Builder
	for _, name := range names {
		all.WriteString(texts[name] + ";\n")
	}
	return all.String()
}

// Deliberately broken builds are found within a minute. A build has several faults if they do
// not hide each other. The builds run one after the other, because a small machine can run
// only one rig next to that of TestShortRun.
func TestBrokenBuildsAreFound(t *testing.T) {
	testrun.Nightly(t, "broken twins of the whole product")
	t.Parallel()
	for name, build := range map[string]struct {
		patches []patch
		rules   []Rule
		other   func(*Config) // changes to its run
	}{
		"a killed worker's deliveries are not handed out again": {
			[]patch{{"finish.sql", "where told.became in ('retried', 'lost', 'released') and v_kept and not v_settings.keyed", "where told.became in ('retried', 'released') and v_kept and not v_settings.keyed"}},
			[]Rule{Lost}, nil,
		},
		"attempts are not counted, and keys have no lane of their own": {
			[]patch{
				{"finish.sql", "least(told.attempt + (told.became <> 'released')::int, 32767)", "told.attempt"},
				{"key_lane.sql", "when key is null then", "when true then"},
			},
			[]Rule{Attempts, Order}, nil,
		},
		"living workers are declared lost, and their late settlements are not withdrawn": {
			[]patch{
				// A heartbeat comes after three tenths of a lease.
				{"worker_overdue.sql", "+ w.lease <", "+ w.lease / 10 <"},
				{"settle.sql", "perform posthaste.late_done(v_late[v_place], v_bits[v_place]);", "null;"},
			},
			[]Rule{Twice}, nil,
		},
		"acknowledged sends are not on disk yet": {
			nil, []Rule{Lost},
			func(c *Config) {
				c.Kinds, c.Queues = []Fault{KillPostgres}, []string{Plain, Ordered, Effects, Mails} // at-most-once claims are always flushed, together with earlier sends
				c.Sabotage = "alter role all set synchronous_commit = off"
			},
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			sabotage := broken(t, build.patches...)
			found(t, build.rules, func() Config {
				c := short(t)
				c.Duration, c.Kinds = 16*time.Second, []Fault{KillWorker}
				c.Queues = []string{Plain, Ordered, Effects, Once, Mails} // a broker takes a while to start
				c.Slack = 0                                               // lost messages need not be waited for
				c.Sabotage = sabotage
				if build.other != nil {
					build.other(&c)
				}
				return c
			})
		})
	}
}

// found runs a broken build until each of the rules was broken, at most for a minute, because
// a run of a few seconds does not reach every case.
func found(t *testing.T, rules []Rule, config func() Config) {
	t.Helper()
	for range 3 {
		rules = slices.DeleteFunc(slices.Clone(rules), run(t, config()).Broke)
		if len(rules) == 0 {
			return
		}
	}
	t.Errorf("in three runs, together less than a minute, nothing was %s", rules)
}
