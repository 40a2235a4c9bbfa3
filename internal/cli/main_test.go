//go:build unix

package cli_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/posthaste-mq/posthaste/internal/cli"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// patience is the longest wait for a condition.
const patience = 3 * time.Minute

// TestMain puts this test binary on the PATH of the tests as the program posthaste.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "posthaste" {
		cleanEnvironment()
	}
	testscript.Main(m, map[string]func(){"posthaste": func() { os.Exit(cli.Main(os.Args[1:])) }})
}

// cleanEnvironment removes variables of Posthaste from the environment, except those of the
// test servers, and the contexts of the user.
func cleanEnvironment() {
	for _, env := range os.Environ() {
		name, _, _ := strings.Cut(env, "=")
		ours := strings.HasPrefix(name, "POSTHASTE_") && !strings.HasPrefix(name, "POSTHASTE_TEST_") && name != "POSTHASTE_MAVEN_REPOSITORY"
		if ours || strings.HasPrefix(name, "OTEL_") || name == "DATABASE_URL" || name == "REDIS_URL" || name == "NATS_URL" || name == "SMTP_URL" {
			os.Unsetenv(name)
		}
	}
	os.Setenv("XDG_CONFIG_HOME", filepath.Join(os.TempDir(), "no contexts of posthaste"))
}

// TestScripts runs testdata/*.txtar, each with its own databases: $DATABASE_URL has the
// schema, $EMPTY_URL does not.
func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			if file == "testdata/bench.txtar" {
				testrun.Nightly(t, "benches run for seconds each; package bench tests them in short")
			}
			url, empty := testpg.New(t), testpg.Empty(t)
			runScript(t, file, "DATABASE_URL", url, "EMPTY_URL", empty)
		})
	}
}

// TestScriptsOnRedis runs testdata/redis/*.txtar, and the scripts that work with every
// engine, each with its own Redis: $REDIS_URL.
func TestScriptsOnRedis(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/redis/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range append(files, "testdata/send.txtar", "testdata/receive.txtar", "testdata/schedule.txtar", "testdata/subscription.txtar") {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			if filepath.Dir(file) == "testdata" {
				testrun.Nightly(t, "the same script runs on PostgreSQL")
			}
			runScript(t, file, "REDIS_URL", startRedis(t).URL())
		})
	}
}

// TestScriptsOnNATS runs testdata/nats/*.txtar, each with its own NATS server: $NATS_URL. Its user
// has the permissions of docs/production/nats-engine.md.
func TestScriptsOnNATS(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/nats/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			server := startNATS(t, "authorization: {users: [{user: app, password: right, permissions: "+natsPermissions(t)+"}]}")
			runScript(t, file, "NATS_URL", "nats://app:right@"+server.Address())
		})
	}
}

// natsPermissions returns the permissions of docs/production/nats-engine.md in the form of a server's configuration.
func natsPermissions(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/production/nats-engine.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| (publish|subscribe) \\| (`.*`) \\|$").FindAllStringSubmatch(string(text), -1)
	if len(rows) != 2 {
		t.Fatalf("the table of permissions has the rows %q", rows)
	}
	var all []string
	for _, row := range rows {
		all = append(all, row[1]+": ["+strings.ReplaceAll(row[2], "`", `"`)+"]")
	}
	return "{" + strings.Join(all, ", ") + "}"
}

// startNATS starts a NATS server for one test.
func startNATS(t *testing.T, further ...string) *devbroker.NATS {
	t.Helper()
	n, err := devbroker.StartNATS(t.Context(), t.TempDir(), further...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Stop)
	return n
}

// startRedis starts a Redis for one test.
func startRedis(t *testing.T, further ...string) *devbroker.Redis {
	t.Helper()
	r, err := devbroker.StartRedis(t.Context(), t.TempDir(), further...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r
}

// runScript runs a script with variables set.
func runScript(t *testing.T, file string, variables ...string) {
	testscript.Run(t, testscript.Params{
		Files: []string{file}, RequireExplicitExec: true, RequireUniqueNames: true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"code": code, "keep": keep, "waitfor": waitfor},
		Setup: func(env *testscript.Env) error {
			for i := 0; i < len(variables); i += 2 {
				env.Setenv(variables[i], variables[i+1])
			}
			return os.WriteFile(filepath.Join(env.WorkDir, "bytes"), []byte{0, 0xff, 0xc0, 0x80}, 0o600)
		},
	})
}

// code runs a command that must end with an exit code: code 2 posthaste …
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code NUMBER program [args]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d\nstdout: %s\nstderr: %s", got, want, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
}

// keep sets a variable to the last output without its final newline: keep ID
func keep(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: keep NAME")
	}
	ts.Setenv(args[0], strings.TrimSuffix(ts.ReadFile("stdout"), "\n"))
}

// waitfor runs a command with --json until it lists the given number of entries: waitfor 2
// posthaste dead ls
func waitfor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: waitfor COUNT program [args]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	var list []json.RawMessage
	if !testrun.Happens(patience, func() bool {
		ts.Check(ts.Exec(args[1], append(args[2:], "--json")...))
		answer := []byte(ts.ReadFile("stdout"))
		var page struct{ Data []json.RawMessage } // of dead ls
		if list = nil; json.Unmarshal(answer, &page) == nil {
			list = page.Data
		} else {
			ts.Check(json.Unmarshal(answer, &list))
		}
		return len(list) == want
	}) {
		ts.Fatalf("%d things after %s, want %d", len(list), patience, want)
	}
}
