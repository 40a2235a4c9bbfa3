//go:build unix

package documents_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// migration is a product whose jobs are imported.
type migration struct {
	name   string
	tables []string
	// version is a command that prints its version.
	version []string
	// install is a command that prints the SQL that creates the tables, if before does not.
	install []string
	// before and after are the commands of the programs, and folder is where they run if it is not
	// the one with the installed packages. before leaves a job that is due in an hour, or leave
	// inserts it.
	before, after []string
	folder        string
	leave         string
	// queues are the arguments of queue create.
	queues [][]string
	prints string // by before
}

const (
	migrations = "examples/migrate"
	node       = "node_modules/node/bin/node"
	python     = "venv/bin/python"
	// printsBefore and printsAfter are the lines of the programs, sorted. The last one is of the
	// imported job.
	printsBefore = "order 7: the carrier is busy\nshipped order 7\n"
	printsAfter  = "asked for a review of order 7\norder 8: the carrier is busy\nshipped order 8\n"
)

var productsToLeave = []migration{
	{
		name: "River", tables: []string{"public.river_job"}, folder: "examples/from-river/river",
		version: []string{"go", "list", "-m", "-f", "{{.Version}}", "github.com/riverqueue/river"},
		before:  []string{"go", "run", "."},
		leave:   "insert into river_job (kind, args, state, scheduled_at) values ('review', '{\"order\": 7}', 'scheduled', now() + interval '1 hour')",
		queues:  [][]string{{"default"}},
		prints:  "asked for a review of order 7\nshipped order 7, attempt 2\n",
	},
	{
		name: "pg-boss", tables: []string{"pgboss.queue", "pgboss.job", "pgboss.job_common"},
		version: []string{node, "-p", "require('pg-boss/package.json').version"},
		before:  []string{node, "pg-boss/before/shop.mjs"}, after: []string{node, "pg-boss/after/shop.mjs"},
		queues: [][]string{{"ship", "--max-attempts", "5"}, {"review"}},
	},
	{
		name: "graphile-worker", tables: []string{"graphile_worker._private_tasks", "graphile_worker._private_job_queues", "graphile_worker._private_jobs"},
		version: []string{node, "-p", "JSON.parse(fs.readFileSync('node_modules/graphile-worker/package.json')).version"},
		before:  []string{node, "graphile-worker/before/shop.mjs"}, after: []string{node, "graphile-worker/after/shop.mjs"},
		queues: [][]string{{"default", "--key-concurrency", "1"}},
	},
	{
		name: "pgmq", tables: []string{"pgmq.meta", "pgmq.q_shop"},
		version: []string{python, "-c", "import pgmq.install; print(pgmq.install.get_embedded_sql_version())"},
		install: []string{python, "-c", "import pgmq.install; print(pgmq.install.get_embedded_install_sql())"},
		before:  []string{python, "pgmq/before/shop.py"}, after: []string{python, "pgmq/after/shop.py"},
		queues: [][]string{{"shop"}},
	},
}

// TestMigrations migrates a shop from each product: the program for the product runs and leaves a
// job that is due in an hour, which `posthaste import sql` imports, and the program for Posthaste
// runs and handles it. The tables are also those on which the presets are tested on each change.
func TestMigrations(t *testing.T) {
	t.Parallel()
	testrun.Nightly(t, "installing the products takes minutes; the presets are tested on copies of their tables on each change")
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	installed := filepath.Join(cache, "posthaste", "migrate")
	ctx, cancel := context.WithTimeout(t.Context(), 10*patience)
	defer cancel()
	if out, err := exec.CommandContext(ctx, filepath.Join(root, "scripts", "migrate"), installed).CombinedOutput(); err != nil {
		t.Fatalf("scripts/migrate: %v\n%s", err, out)
	}
	program := buildProgram(t)
	t.Run("Oban for Python", func(t *testing.T) {
		t.Parallel()
		importOban(t, installed, program)
	})
	for _, m := range productsToLeave {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			m.migrate(t, installed, program)
		})
	}
}

// buildProgram builds posthaste and returns its path.
func buildProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "posthaste")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/posthaste")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

func (m *migration) migrate(t *testing.T, installed, program string) {
	url := testpg.InPublic(t, testpg.New(t))
	dir := filepath.Join(root, m.folder)
	if m.folder == "" {
		dir = m.place(t, installed)
	}
	run := func(command ...string) string {
		t.Helper()
		return runMigration(t, dir, url, command)
	}
	psql(t, url, read(t, migrations+"/setup.sql"))
	if m.install != nil {
		psql(t, url, run(m.install...))
	}
	want := printsBefore
	if m.prints != "" {
		want = m.prints
	}
	if got := shopLines(run(m.before...)); got != want {
		t.Fatalf("the program before prints\n%swant\n%s", got, want)
	}
	m.compareTables(t, url, strings.TrimPrefix(strings.TrimSpace(run(m.version...)), "v"))
	if m.leave != "" {
		psql(t, url, m.leave)
	}
	for _, queue := range m.queues {
		run(append([]string{program, "queue", "create"}, queue...)...)
	}
	if got := run(program, "import", "sql", "--preset", strings.ToLower(m.name)); !strings.Contains(got, "imported 1 of 1 jobs; 0 are left") {
		t.Fatalf("the import prints\n%s", got)
	}
	if got := run(program, "message", "ls", "--state", "scheduled", "--json"); strings.Count(got, `"id"`) != 1 {
		t.Errorf("the scheduled messages are %s", got)
	}
	if m.after == nil { // TestShopInPosthaste runs it
		return
	}
	psql(t, url, "select posthaste.run_message(message_id) from posthaste.messages") // as if the hour had passed
	if got := shopLines(run(m.after...)); got != printsAfter {
		t.Errorf("the program after prints\n%swant\n%s", got, printsAfter)
	}
}

// place returns a folder of the test's own, with the programs and the installed packages.
func (m *migration) place(t *testing.T, installed string) string {
	t.Helper()
	dir := t.TempDir()
	for _, command := range [][]string{m.before, m.after} {
		program := command[len(command)-1]
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(program)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, program), []byte(read(t, migrations+"/"+program)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"venv", "node_modules"} {
		if err := os.Symlink(filepath.Join(installed, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// runMigration runs a command in a folder and returns its standard output.
func runMigration(t *testing.T, dir, url string, command []string, env ...string) string {
	t.Helper()
	name := command[0]
	if strings.Contains(name, "/") && !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "DATABASE_URL="+url), env...)
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v\n%s%s", command, err, out, log.String())
	}
	return string(out)
}

// shopLines returns the lines that a shop prints, sorted, without those of libraries.
func shopLines(out string) string {
	lines := regexp.MustCompile(`(?m)^(order \d+: |shipped order |asked for a review of order 7).*\n`).FindAllString(out, -1)
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// compareTables compares the product's tables with those in internal/sqlimport/testdata.
func (m *migration) compareTables(t *testing.T, url, version string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	var tables string
	if err := conn.QueryRow(t.Context(), read(t, "internal/documents/testdata/migrate/describe.sql"), m.tables).Scan(&tables); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("-- Tables of %s %s, as the product creates them. TestMigrations of internal/documents writes\n-- this file with -update, and compares it at night.\n\n%s", m.name, version, tables)
	got = strings.ReplaceAll(got, "pgmq.q_shop", "pgmq.q_mail")
	file := "internal/sqlimport/testdata/" + strings.ToLower(m.name) + ".sql"
	if *update {
		if err := os.WriteFile(filepath.Join(root, file), []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want := read(t, file); got != want {
		t.Errorf("%s differs from the tables of the product. Look at the change, and write it with\nPOSTHASTE_TEST_NIGHT=1 go test ./internal/documents -run TestMigrations -update\n%s", file, got)
	}
}
