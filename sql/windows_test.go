package ledger_test

import (
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// seconds is how long a random test runs: short in CI, longer by
// POSTHASTE_TEST_SECONDS.
func seconds(t testing.TB, short int) time.Duration {
	t.Helper()
	if v := os.Getenv("POSTHASTE_TEST_SECONDS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		short = n
	}
	return time.Duration(short) * time.Second
}

// A run is repeated by POSTHASTE_TEST_SEED, as far as the scheduler lets it.
func seed(t testing.TB) uint64 {
	t.Helper()
	if v := os.Getenv("POSTHASTE_TEST_SEED"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return rand.Uint64()
}

// quiet is the time for which a run continues although no message ends any more, before it is
// drained or, if it has keys, judged by its rounds. Leases of 2 s end within it. It decides
// nothing by itself.
const quiet = 3 * time.Second

// Each committed message ends exactly once for each subscription, none is handed out twice as the
// same attempt, none early, none that was rolled back, cancelled or purged, none with a dedupe key
// in use; and at the end nothing is held: with concurrent senders that roll back, use savepoints,
// stay open, prepare, and claim between their sends; receivers that roll back; leases that end;
// workers that vanish while two of their connections settle; a ring that turns; and all other
// features of queues, at random.
func TestInterleaving(t *testing.T) {
	t.Parallel()
	for i, shape := range []shape{crowd, narrow, runaway, hurried} {
		t.Run(shape.name, func(t *testing.T) {
			t.Parallel()
			x := &interleaving{shape: shape, crew: crew{t: t, url: testpg.New(t), seed: seed(t)}}
			x.features = drawn(rand.New(rand.NewPCG(x.seed, uint64(i)<<32)))
			x.run(seconds(t, 2), quiet)
			for _, f := range x.faults {
				t.Error(f)
			}
			if len(x.committed) < enough {
				t.Errorf("only %d messages were sent", len(x.committed))
			}
		})
	}
}

// twins are the shipped functions with one condition broken. The interleavings must find each, or
// they prove nothing: by a fault that the broken condition causes, and not by other effects of a
// busy machine. in is the shape that finds it soonest; if it does not, others are tried in turn
// with it.
var twins = []struct {
	name, file, old, new string
	in                   shape
	features
	found []string // the finding contains one of these
}{
	{"edge of the due time", "due_slice.sql",
		"if v.due_at <= w.t1 and ", "if v.due_at <= w.t1 and v.due_at > w.t0 and ", runaway, features{}, []string{"lost:"}},
	{"a filter that is not asked for due ones", "due_is_for.sql",
		"if s.filter is not null then", "if false then", runaway, features{}, []string{"lost:"}},
	{"rescue racing a settle", "settle_claim.sql",
		"      exit when found;\n", "      exit when true;\n", crowd, features{}, []string{"twice:"}},
	{"a priority without lanes", "part_lanes.sql",
		"update posthaste.queue_settings q set prioritized = true, lanes = greatest(q.lanes, 4 * q.width) where q.id = p_queue;", "null;", runaway, features{priorities: true}, []string{"lost:"}},
	{"purging beside a claim", "purge.sql",
		"  perform posthaste.lock_lanes(v_queue);\n", "  null;\n", runaway, features{purging: true}, []string{"waited when the queue was purged", "never came to subscription", "duplicate key", "twice: reader"}},
	{"purging without delayed messages", "purge.sql",
		"pg_visible_in_snapshot(e.xid, v_purge) and", "false and", runaway, features{purging: true}, []string{"waited when the queue was purged", "never came to subscription"}},
}

// Conditions whose patch a deterministic rule in rules_*_test.go or ranges_test.go has are not
// repeated here. The same applies to twins that fail only in a moment that few runs reach, such as
// that of TestRuleOpenClaimsAreCopiedWhenTheyAreClosed.
func TestInterleavingFindsBrokenTwins(t *testing.T) {
	for _, twin := range twins {
		t.Run(strings.ReplaceAll(twin.name, " ", "_"), func(t *testing.T) {
			found := beginTwin(t, "windows_test.go", patch{file: twin.file})
			shapes := []shape{twin.in, runaway, twin.in, crowd}
			findsBroken(t, twin.found, found, func(n int, left time.Duration) []string {
				url := testpg.New(t)
				breakFunction(t, url, twin.file, twin.old, twin.new)
				x := &interleaving{shape: shapes[n%len(shapes)], features: twin.features, crew: crew{t: t, url: url, seed: seed(t)}}
				// Short at first: lost messages are noticed only when all others have ended.
				x.run(min(time.Duration(3+n)*time.Second, left), quiet)
				return x.faults
			})
		})
	}
}

// findsBroken runs interleavings on a broken twin until one of them has a fault with one of the
// words, and then calls found. At full size that must be within a minute, because each twin has
// the machine for itself. Beside other tests it may take longer, and the log says how long.
func findsBroken(t *testing.T, words []string, found func(), run func(n int, left time.Duration) (faults []string)) {
	t.Helper()
	most := testrun.Size(5*time.Minute, time.Minute)
	if !testrun.Full() {
		t.Parallel()
	}
	begun := time.Now()
	for n := 0; time.Since(begun) < most; n++ {
		faults := run(n, most-time.Since(begun))
		i := slices.IndexFunc(faults, func(fault string) bool {
			return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(fault, w) })
		})
		took := time.Since(begun)
		switch {
		case i < 0 && len(faults) > 0:
			t.Logf("another fault: %s", faults[0])
		case i >= 0 && took > most:
			t.Errorf("found after %s, which is later than within %s: %s", took.Round(time.Second), most, faults[i])
			return
		case i >= 0:
			t.Logf("found after %s: %s", took.Round(time.Second), faults[i])
			found()
			return
		}
	}
	t.Errorf("the broken function was not found within %s", most)
}

// breakFunction applies one condition's patch of a shipped file to a database.
func breakFunction(t testing.TB, url, file, old, patched string) {
	t.Helper()
	text := functionText(t, file)
	if strings.Count(text, old) != 1 {
		t.Fatalf("the patch of %s no longer applies: %q stands there %d times", file, old, strings.Count(text, old))
	}
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(context.Background(), strings.Replace(text, old, patched, 1)); err != nil {
		t.Fatal(err)
	}
}
