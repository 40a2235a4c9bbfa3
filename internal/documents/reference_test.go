//go:build unix

package documents_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/internal/testpg"
	ledger "github.com/posthaste-mq/posthaste/sql"
)

const sqlReference = "docs/reference-sql.md"

// sections are the parts of a document below its headings of the third level.
func sections(t *testing.T, file string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, part := range strings.Split("\n"+read(t, file), "\n### ")[1:] {
		heading, text, _ := strings.Cut(part, "\n")
		text, _, _ = strings.Cut(text, "\n## ")
		found[heading] = text
	}
	return found
}

// says reports whether a text has a word as code.
func says(text, word string) bool { return strings.Contains(text, "`"+word+"`") }

var casts = regexp.MustCompile(`::(timestamp with time zone|[a-z\[\]]+)`)

// TestSQLReferenceHasTheSignatures: what the reference says of functions and
// views is what the database has, and nothing that a role may call is missing.
func TestSQLReferenceHasTheSignatures(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), testpg.New(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	said := sections(t, sqlReference)
	text := read(t, sqlReference)

	type function struct {
		Name, Arguments, Result string
		Granted                 bool
		Columns                 []string
	}
	rows, err := conn.Query(t.Context(), `
		select p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid),
		       has_function_privilege('posthaste_sender', p.oid, 'execute') or has_function_privilege('posthaste_receiver', p.oid, 'execute'),
		       coalesce(array(select u.name from unnest(p.proargnames, p.proargmodes) u (name, mode) where u.mode = 't'), '{}')
		  from pg_proc p where p.pronamespace = 'posthaste'::regnamespace order by 1`)
	if err != nil {
		t.Fatal(err)
	}
	functions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[function])
	if err != nil {
		t.Fatal(err)
	}
	described := 0
	for _, f := range functions {
		arguments := casts.ReplaceAllString(strings.ReplaceAll(f.Arguments, "DEFAULT", "default"), "")
		arguments = strings.NewReplacer("NULL", "null", "CURRENT_USER", "current_user", "SESSION_USER", "session_user").Replace(arguments)
		section, ok := said[f.Name+"("+arguments+")"]
		if !ok {
			if f.Granted && !says(text, f.Name) {
				t.Errorf("%s does not tell of %s(%s)", sqlReference, f.Name, arguments)
			}
			continue
		}
		described++
		delete(said, f.Name+"("+arguments+")")
		if result := strings.ToLower(f.Result); len(f.Columns) == 0 && result != "void" && !says(section, result) {
			t.Errorf("%s does not say that %s returns %s", sqlReference, f.Name, result)
		}
		for _, column := range f.Columns {
			if !says(section, column) {
				t.Errorf("%s does not tell of column %s of %s", sqlReference, column, f.Name)
			}
		}
	}
	if described < 15 {
		t.Errorf("only %d functions are described", described)
	}
	for _, view := range views(t, conn) {
		heading := "View posthaste." + view.Name
		section, ok := said[heading]
		if !ok {
			t.Errorf("%s does not tell of the view %s", sqlReference, view.Name)
		}
		delete(said, heading)
		for _, column := range view.Columns {
			if !says(section, column) {
				t.Errorf("%s does not tell of column %s of view %s", sqlReference, column, view.Name)
			}
		}
	}
	for heading := range said {
		t.Errorf("%s describes something that does not exist: %s", sqlReference, heading)
	}
}

type relation struct {
	Name    string
	Columns []string
}

func views(t *testing.T, conn *pgx.Conn) []relation {
	t.Helper()
	rows, err := conn.Query(t.Context(), `
		select c.relname, array_agg(a.attname::text order by a.attnum)
		  from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
		 where c.relnamespace = 'posthaste'::regnamespace and c.relkind = 'v' group by 1`)
	if err != nil {
		t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[relation])
	if err != nil || len(found) == 0 {
		t.Fatalf("no views: %v", err)
	}
	return found
}

// TestSettingsAreTold: operating.md has every setting with its default.
func TestSettingsAreTold(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), testpg.New(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), `select key, value from posthaste.settings s, jsonb_each_text(to_jsonb(s)) where key <> 'only_row'`)
	if err != nil {
		t.Fatal(err)
	}
	type setting struct{ Name, Value string }
	settings, err := pgx.CollectRows(rows, pgx.RowToStructByPos[setting])
	if err != nil || len(settings) == 0 {
		t.Fatalf("no settings: %v", err)
	}
	text := read(t, "docs/operating.md")
	for _, s := range settings {
		if !strings.Contains(text, "| `"+s.Name+"` | "+s.Value+" |") {
			t.Errorf("docs/operating.md does not say that %s is %s", s.Name, s.Value)
		}
	}
}

var (
	state = regexp.MustCompile(`PH\d{3}`)
	code  = regexp.MustCompile(`(?m)^\t[A-Z]\w+ +Code = "(\w+)"`)
)

// TestErrorsAreTold: errors.md has every SQLSTATE that a function raises and
// every code, and no other SQLSTATE.
func TestErrorsAreTold(t *testing.T) {
	t.Parallel()
	text := read(t, "docs/errors.md")
	raised := map[string]bool{}
	err := fs.WalkDir(ledger.Files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		sql, err := fs.ReadFile(ledger.Files, path)
		for _, s := range state.FindAllString(string(sql), -1) {
			raised[s] = true
		}
		return err
	})
	if err != nil || len(raised) == 0 {
		t.Fatalf("no SQLSTATEs: %v", err)
	}
	for s := range raised {
		if !says(text, s) {
			t.Errorf("docs/errors.md does not tell of %s", s)
		}
	}
	for _, s := range state.FindAllString(text, -1) {
		if !raised[s] {
			t.Errorf("docs/errors.md tells of %s, which nothing raises", s)
		}
	}
	codes := code.FindAllStringSubmatch(read(t, "errors.go"), -1)
	if len(codes) < 10 {
		t.Fatalf("only %d codes found in errors.go", len(codes))
	}
	for _, c := range codes {
		if !says(text, c[1]) {
			t.Errorf("docs/errors.md does not tell of the code %s", c[1])
		}
	}
}

// TestDecisionsAreListed: the index of decisions has each of them.
func TestDecisionsAreListed(t *testing.T) {
	t.Parallel()
	index := read(t, "docs/decisions/README.md")
	files, err := os.ReadDir(filepath.Join(root, "docs/decisions"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 5 {
		t.Errorf("only %d files of decisions", len(files))
	}
	for _, f := range files {
		if f.Name() != "README.md" && !strings.Contains(index, "]("+f.Name()+")") {
			t.Errorf("docs/decisions/README.md does not list %s", f.Name())
		}
	}
	if !slices.ContainsFunc(files, func(f os.DirEntry) bool { return f.Name() == "README.md" }) {
		t.Error("no index")
	}
}

// The list at the head of the SQL reference has every function of it, and the README every
// document.
func TestListsAreComplete(t *testing.T) {
	t.Parallel()
	head, _, _ := strings.Cut(read(t, sqlReference), "\n## ")
	for heading := range sections(t, sqlReference) {
		if name, _, is := strings.Cut(heading, "("); is && !strings.Contains(head, "["+name+"](#") {
			t.Errorf("%s does not list %s", sqlReference, name)
		}
	}
	readme := read(t, "README.md")
	documents, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(documents) == 0 {
		t.Fatal(documents, err)
	}
	for _, path := range documents {
		if !strings.Contains(readme, "(docs/"+filepath.Base(path)+")") {
			t.Errorf("README.md does not list docs/%s", filepath.Base(path))
		}
	}
}
