//go:build unix

package documents_test

import (
	"context"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// importOban imports jobs that were written by the statements of Oban for Python. Its code needs
// a newer Python than the tests have.
func importOban(t *testing.T, installed, program string) {
	url := testpg.InPublic(t, testpg.New(t))
	script, err := filepath.Abs(filepath.Join(root, "internal/documents/testdata/migrate/oban.py"))
	if err != nil {
		t.Fatal(err)
	}
	run := func(command ...string) string {
		t.Helper()
		return runMigration(t, installed, url, command)
	}
	run(python, script)
	packages, err := filepath.Glob(filepath.Join(installed, "oban-*.whl"))
	if err != nil || len(packages) != 1 {
		t.Fatalf("the packages are %q, %v", packages, err)
	}
	version := regexp.MustCompile(`oban-([0-9.]+)-`).FindStringSubmatch(packages[0])[1]
	if !strings.Contains(read(t, "docs/migrate/oban.md"), "Oban for Python "+version) {
		t.Errorf("docs/migrate/oban.md names another version than Oban for Python %s", version)
	}
	m := migration{name: "Oban-Python", tables: []string{"public.oban_jobs"}}
	m.compareTables(t, url, version)
	run(program, "queue", "create", "default")
	if got := run(program, "import", "sql", "--preset", "oban"); !strings.Contains(got, "imported 3 of 3 jobs; 0 are left") {
		t.Fatalf("the import prints\n%s", got)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	rows, err := conn.Query(t.Context(), `
		select concat_ws(' ', reference, kind, convert_from(payload, 'UTF8')::jsonb, state, terms, headers->>'error', headers->>'retry-count', headers->>'tenant')
		  from posthaste.messages order by reference`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	want := []string{
		`1 shop.Ship {"order": 1} scheduled the carrier is busy 1`,
		`2 shop.Invoice {"order": 2} ready`,
		`3 shop.Review {"order": 3} scheduled {x} ada`,
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("the messages are\n%s\nwant\n%s\n%v", strings.Join(got, "\n"), strings.Join(want, "\n"), err)
	}
}
