//go:build unix

package documents_test

import (
	"io/fs"
	"maps"
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

const sqlReference = "docs/reference/sql.md"

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

// kinds are the types by which the reference names what a parameter takes: the sets of types in a
// function's overloads, and the type of any JSON.
var kinds = map[string]string{
	"anycompatible":                 "JSON",
	"json jsonb text":               "JSON",
	"bigint bigint[] text":          "bigint or bigint[]",
	"text timestamp with time zone": "timestamp with time zone",
}

// oneSignature returns the parameters of all overloads of a function as the reference writes
// them: the set of types that a parameter takes as one kind, with its default if any has one.
func oneSignature(t *testing.T, function string, overloads []string) string {
	t.Helper()
	type parameter struct {
		name, preset string
		types        map[string]bool
	}
	var parameters []parameter
	for _, arguments := range overloads {
		arguments = casts.ReplaceAllString(strings.ReplaceAll(arguments, "DEFAULT", "default"), "")
		arguments = strings.NewReplacer("NULL", "null", "CURRENT_USER", "current_user", "SESSION_USER", "session_user").Replace(arguments)
		for n, argument := range strings.Split(arguments, ", ") {
			rest, preset, _ := strings.Cut(argument, " default ")
			out := strings.HasPrefix(rest, "OUT ")
			name, kind, _ := strings.Cut(strings.TrimPrefix(rest, "OUT "), " ")
			if out {
				name = "OUT " + name
			}
			if n == len(parameters) {
				parameters = append(parameters, parameter{name: name, types: map[string]bool{}})
			}
			if parameters[n].name != name {
				t.Fatalf("overloads of %s have different parameters: %q", function, overloads)
			}
			parameters[n].types[kind] = true
			if preset != "" {
				parameters[n].preset = " default " + preset
			}
		}
	}
	var out []string
	for _, p := range parameters {
		kind := strings.Join(slices.Sorted(maps.Keys(p.types)), " ")
		if named, ok := kinds[kind]; ok {
			kind = named
		} else if len(p.types) > 1 {
			t.Errorf("parameter %s of %s takes a set of types without a name: %s", p.name, function, kind)
		}
		out = append(out, strings.TrimSpace(p.name+" "+kind)+p.preset)
	}
	return strings.Join(out, ", ")
}

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
		Name      string
		Overloads []string
		Result    string
		Granted   bool
		Columns   []string
	}
	rows, err := conn.Query(t.Context(), `
		select p.proname, array_agg(pg_get_function_arguments(p.oid) order by p.oid), min(pg_get_function_result(p.oid)),
		       bool_or(has_function_privilege('posthaste_sender', p.oid, 'execute') or has_function_privilege('posthaste_receiver', p.oid, 'execute')),
		       (array_agg(to_jsonb(array(select u.name from unnest(p.proargnames, p.proargmodes) u (name, mode) where u.mode = 't'
		             union all
		             select a.attname from pg_type t join pg_attribute a on a.attrelid = t.typrelid and a.attnum > 0 where t.oid = p.prorettype))))[1]
		  from pg_proc p where p.pronamespace = 'posthaste'::regnamespace group by 1 order by 1`)
	if err != nil {
		t.Fatal(err)
	}
	functions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[function])
	if err != nil {
		t.Fatal(err)
	}
	described := 0
	for _, f := range functions {
		signature := f.Name + "(" + oneSignature(t, f.Name, f.Overloads) + ")"
		section, ok := said[signature]
		if !ok {
			if f.Granted && !says(text, f.Name) {
				t.Errorf("%s does not tell of %s", sqlReference, signature)
			}
			continue
		}
		described++
		delete(said, signature)
		if result := strings.ToLower(f.Result); len(f.Columns) == 0 && !says(section, result) {
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

// TestSettingsAreTold: the page about configuration has every setting with its default.
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
	text := read(t, "docs/reference/configuration.md")
	for _, s := range settings {
		if !strings.Contains(text, "| `"+s.Name+"` | "+s.Value+" |") {
			t.Errorf("docs/reference/configuration.md does not say that %s is %s", s.Name, s.Value)
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
	text := read(t, "docs/reference/errors.md")
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
			t.Errorf("docs/reference/errors.md does not tell of %s", s)
		}
	}
	for _, s := range state.FindAllString(text, -1) {
		if !raised[s] {
			t.Errorf("docs/reference/errors.md tells of %s, which nothing raises", s)
		}
	}
	codes := code.FindAllStringSubmatch(read(t, "errors.go"), -1)
	if len(codes) < 10 {
		t.Fatalf("only %d codes found in errors.go", len(codes))
	}
	for _, c := range codes {
		if !says(text, c[1]) {
			t.Errorf("docs/reference/errors.md does not tell of the code %s", c[1])
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

// The list at the head of the SQL reference has every function of it.
func TestListsAreComplete(t *testing.T) {
	t.Parallel()
	head, _, _ := strings.Cut(read(t, sqlReference), "\n## ")
	for heading := range sections(t, sqlReference) {
		if name, _, is := strings.Cut(heading, "("); is && !strings.Contains(head, "["+name+"](#") {
			t.Errorf("%s does not list %s", sqlReference, name)
		}
	}
}

// entry is a page in the navigation of the site.
var entry = regexp.MustCompile(`(?m)^ *- (?:[^#:\n]+: )?([a-z/-]+\.md|decisions/README\.md)$`)

// The navigation of the site has every page once, and no other. The index of decisions lists
// the decisions.
func TestNavigationHasEveryPage(t *testing.T) {
	t.Parallel()
	listed := map[string]int{}
	for _, m := range entry.FindAllStringSubmatch(read(t, "mkdocs.yml"), -1) {
		listed["docs/"+m[1]]++
	}
	for _, file := range documents(t) {
		isDecision := strings.HasPrefix(file, "docs/decisions/") && file != "docs/decisions/README.md"
		if !strings.HasPrefix(file, "docs/") || isDecision {
			continue
		}
		if listed[file] != 1 {
			t.Errorf("the navigation in mkdocs.yml has %s %d times, want once", file, listed[file])
		}
		delete(listed, file)
	}
	for file := range listed {
		t.Errorf("the navigation in mkdocs.yml has %s, which does not exist", file)
	}
}
