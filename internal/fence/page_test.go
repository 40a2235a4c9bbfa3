package fence

import (
	"os"
	"path"
	"strings"
	"testing"
)

// The table of folders in ARCHITECTURE.md names each package and its allowed imports.
func TestTableOfImports(t *testing.T) {
	t.Parallel()
	const file = "../../ARCHITECTURE.md"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	filled, folders, err := fillTable(string(page))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	names, err := goFiles(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]bool{}
	for _, name := range names {
		packages[path.Dir(name)] = true
	}
	for folder := range packages {
		if !named(folders, folder) {
			t.Errorf("%s: the table of folders has no row for %s", file, folder)
		}
	}
	for _, folder := range folders {
		if !packages[folder] && path.Base(folder) != "*" {
			t.Errorf("%s: the table of folders names %s, which has no Go files", file, folder)
		}
	}
	switch {
	case *update:
		if err := os.WriteFile(file, []byte(filled), 0o644); err != nil {
			t.Fatal(err)
		}
	case filled != string(page):
		t.Errorf("the table of folders in %s differs from internal/fence/fence.go; run: go test ./internal/fence -update", file)
	}
}

func TestTableIsFilled(t *testing.T) {
	t.Parallel()
	page := func(rows ...string) string {
		return "# Title\n\n" + tableHead + "|---|---|---|\n" + strings.Join(rows, "\n") + "\n\nThe end.\n"
	}
	for _, row := range []string{"| `relay` | two cells |", "| `newcomer` | new | |", "| `internal/redis`, `relay` | different imports | |"} {
		if filled, _, err := fillTable(page(row)); err == nil {
			t.Errorf("%s was accepted:\n%s", row, filled)
		}
	}
	want := page("| `.` (the root) | domain | the standard library |", "| `internal/redis` | connections | root, `internal/login` |", "| `internal/a`, `internal/b` | two | root |")
	filled, folders, err := fillTable(page("| `.` (the root) | domain | |", "| `internal/redis` | connections | stale |", "| `internal/a`, `internal/b` | two | root |"))
	if err != nil || filled != want || strings.Join(folders, " ") != ". internal/redis internal/a internal/b" {
		t.Errorf("%q, %v\n%s", folders, err, filled)
	}
	if _, _, err := fillTable("# No table\n"); err == nil {
		t.Error("a page without a table was accepted")
	}
}
