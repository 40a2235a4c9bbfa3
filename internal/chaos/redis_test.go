//go:build unix

package chaos

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/testpg/testdb"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// shortOnRedis is [short] on a Redis.
func shortOnRedis(t *testing.T) Config {
	t.Helper()
	if testdb.Version(t) != "18" {
		t.Skip("the same with any PostgreSQL")
	}
	c := short(t)
	c.Engine = OnRedis
	return c
}

// A worker, a sender and Redis are killed with work in flight, Redis runs out of memory, and
// connections are cut, also when a script has run and its reply is lost or truncated. Every
// guarantee holds.
func TestRE_Chaos(t *testing.T) {
	t.Parallel()
	testrun.Nightly(t, "an hour of it runs at night, and TestShortRun on PostgreSQL on each change")
	c := shortOnRedis(t)
	c.Kinds = []Fault{KillWorker, KillSender, KillRedis, FullMemory, Cut, CutStatement, CutAnswer, CutReply}
	for _, broken := range run(t, c).Violations {
		t.Error(broken)
	}
}

// brokenOnRedis builds the program for the children with broken scripts.
func brokenOnRedis(t *testing.T, patches ...patch) (program string) {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	for _, p := range patches {
		shipped, err := filepath.Abs(filepath.Join("..", "..", "redis", "scripts", p.file))
		if err != nil {
			t.Fatal(err)
		}
		read := shipped
		if replace[shipped] != "" {
			read = replace[shipped]
		}
		text, err := os.ReadFile(read)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), p.from) {
			t.Fatalf("%s does not hold %q: move the patch to where that is now", p.file, p.from)
		}
		replace[shipped] = filepath.Join(dir, p.file)
		if err := os.WriteFile(replace[shipped], []byte(strings.ReplaceAll(string(text), p.from, p.to)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, "children")
	if out, err := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "./run").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// Senders and workers with broken scripts are found within a minute, as in
// [TestBrokenBuildsAreFound].
func TestRE_BrokenBuildsAreFound(t *testing.T) {
	testrun.Nightly(t, "broken twins of the whole product")
	t.Parallel()
	for name, build := range map[string]struct {
		patches []patch
		rules   []Rule
	}{
		"a killed worker's deliveries are unknown, attempts are not counted, and keys run backwards": {
			[]patch{
				{"hand.lua", "call('ZADD', CLAIMS, worker, tag)", ""},
				{"ended.lua", "if outcome ~= 'released' then st.a = st.a + 1 end", ""},
				{"keyed.lua", `'ZRANGEBYLEX', WAIT, '[' .. key .. '\0', '(' .. key .. '\1', 'LIMIT', 0, n`, `'ZREVRANGEBYLEX', WAIT, '(' .. key .. '\1', '[' .. key .. '\0', 'LIMIT', 0, n`},
			},
			[]Rule{Lost, Attempts, Order},
		},
		"living workers are taken for dead": {
			// A heartbeat comes after three tenths of a lease, which is 5 s.
			[]patch{
				{"rescue.lua", "LEASES, '-inf', '(' .. text(now)", "LEASES, '-inf', '(' .. text(now + 4000000)"},
				{"beat.lua", "if first and first < now then", "if first and first < now + 4000000 then"},
			},
			[]Rule{Twice},
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			children := brokenOnRedis(t, build.patches...)
			found(t, build.rules, func() Config {
				c := shortOnRedis(t)
				c.Duration, c.Kinds = 16*time.Second, []Fault{KillWorker}
				c.Slack = 0 // lost messages need not be waited for
				c.Children = children
				return c
			})
		})
	}
}
