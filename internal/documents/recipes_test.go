//go:build unix

package documents_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

const recipes = "examples/recipes"

// recipeCommands say how a recipe is run in the folder with the copies of the recipes and all that
// scripts/recipes has installed.
var recipeCommands = map[string][]string{
	"psycopg":      {"venv/bin/python", "psycopg/ship.py"},
	"sqlalchemy":   {"venv/bin/python", "sqlalchemy/ship.py"},
	"asyncpg":      {"venv/bin/python", "asyncpg/ship.py"},
	"node-pg":      {"node", "node-pg/ship.mjs"},
	"postgres-js":  {"node", "postgres-js/ship.mjs"},
	"drizzle":      {"node", "drizzle/ship.mjs"},
	"prisma":       {"node", "prisma/ship.mjs"},
	"jdbc":         {"java", "--class-path", "jars/*", "jdbc/Ship.java"},
	"bun":          {"go", "run", "bun/ship.go"},
	"gorm":         {"go", "run", "gorm/ship.go"},
	"ruby-pg":      {"ruby", "ruby-pg/ship.rb"},
	"activerecord": {"ruby", "activerecord/ship.rb"},
}

// testedCommands run programs of testdata. Those of bindings call functions with each value that
// the page's table names, and the one of ActiveRecord checks what its page says. Those of fragments
// have the parts of programs that the pages show.
var testedCommands = map[string][]string{
	"python":           {"venv/bin/python", "bindings/bindings.py"},
	"python-fragments": {"venv/bin/python", "fragments/fragments.py"},
	"node":             {"node", "bindings/bindings.mjs"},
	"node-fragments":   {"node", "fragments/fragments.mjs"},
	"java":             {"java", "--class-path", "jars/*", "bindings/Bindings.java"},
	"ruby":             {"ruby", "bindings/bindings.rb"},
	"ruby-rules":       {"ruby", "bindings/activerecord.rb"},
}

// TestEveryRecipeIsRunAndShown: each recipe has a command here, and is quoted as a whole.
func TestEveryRecipeIsRunAndShown(t *testing.T) {
	t.Parallel()
	programs, err := filepath.Glob(filepath.Join(root, recipes, "*", "[sS]hip.*"))
	if err != nil || len(programs) != len(recipeCommands) {
		t.Errorf("%d programs, %d commands, %v", len(programs), len(recipeCommands), err)
	}
	var page string
	for _, name := range []string{"go-transactions", "java", "nodejs", "python", "ruby"} {
		page += read(t, "docs/guides/"+name+".md")
	}
	for name, command := range recipeCommands {
		program := command[len(command)-1]
		if !strings.Contains(page, "<!-- quote: "+recipes+"/"+program+" -->") {
			t.Errorf("the recipe for %s is not shown", name)
		}
	}
}

// TestRecipes runs the program of each driver: it ships an order that it sends, and fails another
// whose shipment exists already. It also runs the calls of the table of
// bindings, and the parts of programs that the pages show.
func TestRecipes(t *testing.T) {
	t.Parallel()
	testrun.Nightly(t, "installing the drivers takes minutes, and TestEveryCallWorksAsDriversBind tries their calls on each change")
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	installed := filepath.Join(cache, "posthaste", "recipes")
	ctx, cancel := context.WithTimeout(t.Context(), 10*patience)
	defer cancel()
	if out, err := exec.CommandContext(ctx, filepath.Join(root, "scripts", "recipes"), installed).CombinedOutput(); err != nil {
		t.Fatalf("scripts/recipes: %v\n%s", err, out)
	}
	for name, command := range testedCommands {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := testpg.New(t)
			psql(t, url, read(t, recipes+"/setup.sql"))
			runRecipe(t, installed, url, "internal/documents/testdata", "all calls work\n", command)
		})
	}
	for name, command := range recipeCommands {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := testpg.New(t)
			psql(t, url, read(t, recipes+"/setup.sql")+`
				insert into public.shipments values (13);
				select posthaste.send('orders', '{"order": 13}', '{"reference": "order-13"}');`)
			runRecipe(t, installed, url, recipes, "shipped order 7\n", command)
			conn, err := pgx.Connect(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(t.Context())
			for reference, want := range map[string]string{"order-7": "done", "order-13": "retrying"} {
				var state string
				if err := conn.QueryRow(t.Context(), `select max(state) from posthaste.list_messages(reference => $1)`, reference).Scan(&state); err != nil || state != want {
					t.Errorf("%s is %q, want %q, %v", reference, state, want, err)
				}
			}
			var shipped int
			if err := conn.QueryRow(t.Context(), `select count(*) from public.shipments s join public.orders o on o.id = s.order_id`).Scan(&shipped); err != nil || shipped != 1 {
				t.Errorf("%d orders were shipped, %v", shipped, err)
			}
		})
	}
}

// runRecipe runs a program of a folder and compares its output.
func runRecipe(t *testing.T, installed, url, folder, want string, command []string) {
	t.Helper()
	dir := filepath.Join(root, folder)
	if command[0] != "go" { // its programs are in a module
		dir = recipeFolder(t, installed, folder, command[len(command)-1])
	}
	name := command[0]
	if strings.Contains(name, "/") {
		name = filepath.Join(dir, name)
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	address, _, _ := strings.Cut(url[strings.LastIndex(url, "@")+1:], "?")
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "DATABASE_URL="+url, "JDBC_URL=jdbc:postgresql://"+address+"?user="+config.User+"&password="+config.Password)
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil || string(out) != want {
		t.Errorf("%v: %v\n%s%s", command, err, out, log.String())
	}
}

// recipeFolder returns a folder of the test's own, which has the program and the installed packages.
func recipeFolder(t *testing.T, installed, folder, program string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(program)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, program), []byte(read(t, folder+"/"+program)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"venv", "node_modules", "jars"} {
		if err := os.Symlink(filepath.Join(installed, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
