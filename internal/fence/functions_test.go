package fence

import (
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestFunctionsOfTheLedger(t *testing.T) {
	t.Parallel()
	module := os.DirFS("../..")
	for name, check := range checksOfSQL {
		found, err := check(module)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range found {
			t.Errorf("%s: %v", name, v)
		}
	}
	// A check that found no calls would find no violation either.
	all, _, err := readFunctions(module, nil)
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	for _, f := range all {
		calls += len(f.calls)
	}
	if len(all) < 200 || calls < 500 {
		t.Errorf("only %d calls of %d functions were found", calls, len(all))
	}
}

// smallLedger keeps the rules: two rooms, a view, and one function of each class.
func smallLedger() fstest.MapFS {
	tree := fstest.MapFS{}
	for name, text := range map[string]string{
		"sql/functions/README.md":             "1. **ground**: below.\n2. **send**: above.\n",
		"sql/functions/ground/key.sql":        function("key", "select 1"),
		"sql/functions/ground/shown.sql":      function("shown", "select posthaste.part()"),
		"sql/functions/ground/inner/part.sql": function("part", "select 1"),
		"sql/functions/send/send.sql":         function("send", "select posthaste.key(), posthaste.check()"),
		"sql/functions/send/send_row.sql":     function("send_row", "-- posthaste.later()\n raise exception using message = 'no', hint = 'posthaste.shown()';"),
		"sql/functions/send/inner/check.sql":  function("check", "select 1"),
		"sql/views/queues.sql":                "create view posthaste.queues as select posthaste.shown();",
		"sql/migrations/0001_ledger.sql":      "-- breaking\n",
		"sql/grants.sql":                      "('public', 'posthaste_sender', 'send'), ('driver', 'posthaste_sender', 'send_row'), ('view', 'posthaste_admin', 'shown'), ('view', 'posthaste_admin', 'part')",
		"docs/reference/sql.md":               "### send(queue text)\n",
		"postgres/send.go":                    "package postgres\n\nvar statement = `select posthaste.send_row($1)`\n",
	} {
		tree[name] = &fstest.MapFile{Data: []byte(text)}
	}
	for _, name := range familiesInGo {
		tree["sql/functions/ground/"+name+".sql"] = &fstest.MapFile{Data: []byte(function(name, "select 1"))}
		tree["sql/grants.sql"].Data = append(tree["sql/grants.sql"].Data, "('driver', 'posthaste_receiver', '"+name+"')"...)
	}
	return tree
}

func function(name, body string) string {
	return "create or replace function posthaste." + name + "()\nreturns int language sql as $$ " + body + " $$;\n"
}

var checksOfSQL = map[string]func(fsys fs.FS) ([]Violation, error){"rooms": CheckFunctions, "grants": CheckGrants}

func TestRulesOfFunctions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, text string // which are added to the small ledger

		want string // a part of the finding; empty for none
	}{
		"small ledger":          {},
		"upward call":           {file: "sql/functions/ground/key.sql", text: function("key", "select posthaste.send()"), want: "key must not call send: room send comes after room ground"},
		"upward call in a join": {file: "sql/functions/ground/inner/part.sql", text: function("part", "select from posthaste.send ()"), want: "part must not call send"},
		"inner call":            {file: "sql/functions/send/send_row.sql", text: function("send_row", "select posthaste.part()"), want: "send_row must not call part: it is an inner function of room ground"},
		"call after a flag":     {file: "sql/functions/ground/key.sql", text: function("key", "raise exception using hint = 'use --key'; perform posthaste.send();"), want: "key must not call send"},
		"not inner":             {file: "sql/functions/send/extra.sql", text: function("extra", "select 1"), want: "extra is called by its own room alone"},
		"inner, and for all":    {file: "sql/views/queues.sql", text: "select posthaste.part(), posthaste.shown()", want: "part is called from outside of its room"},
		"no room":               {file: "sql/functions/extra.sql", text: function("extra", "select 1"), want: "is no room of"},
		"a room too deep":       {file: "sql/functions/send/inner/more/extra.sql", text: function("extra", "select 1"), want: "is no room of"},
		"room without files":    {file: "sql/functions/README.md", text: "1. **ground**: x.\n2. **send**: x.\n3. **claim**: x.\n", want: "room claim has no files"},
		"name there twice":      {file: "sql/functions/send/inner/key.sql", text: function("key", "select 1"), want: "has the same base name"},
		"another name":          {file: "sql/functions/ground/key.sql", text: function("keys", "select 1"), want: "must create the function posthaste.key, with its overloads, and no other"},
		"right too many":        {file: "docs/reference/sql.md", text: "# None\n", want: `send has the class "public", and should have ""`},
		"driver not called":     {file: "postgres/send.go", text: "package postgres\n\n// posthaste.send_row() is called\n", want: `send_row has the class "driver", and should have ""`},
		"called, and no right":  {file: "postgres/more.go", text: "package postgres\n\nvar more = \"select posthaste.key()\"\n", want: `key has the class "", and should have "driver"`},
		"called by tests alone": {file: "postgres/more_test.go", text: "package postgres\n\nvar more = \"select posthaste.key()\"\n"},
		"function of a view":    {file: "sql/functions/ground/inner/part.sql", text: function("part", "select 2, posthaste.key()"), want: `key has the class "", and should have "view"`},
	} {
		tree := smallLedger()
		if c.file != "" {
			tree[c.file] = &fstest.MapFile{Data: []byte(c.text)}
		}
		var all []string
		for _, check := range slices.Sorted(maps.Keys(checksOfSQL)) {
			found, err := checksOfSQL[check](tree)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range found {
				all = append(all, v.String())
			}
		}
		got := strings.Join(all, "\n")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: found %q, want %q", name, got, c.want)
		}
	}
}
