// Package fence checks the structure of this module. Its tests run over the module.
//
// Imports: the root package is the domain and imports only the standard library.
// Engines, runtime, sinks and server import it and never each other. Only cmd
// and internal/cli tie them together. Test files may import anything.
//
// SQL: which function calls which, and which functions roles may execute.
//
// Ratchets: circles of types and files, long functions, long files and uses of
// time.Sleep in tests have limits. Values above a limit have a baseline in
// testdata/ratchets.txt that only falls.
//
// `go test ./internal/fence -update` lowers baselines and writes the table of imports in
// ARCHITECTURE.md.
package fence

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// module is the path of this module.
const module = "github.com/posthaste-mq/posthaste"

// room says what a package may import of this module. Packages are named by
// their folders; the root package is ".".
type room struct {
	// name is a folder, or "folder/*" for those right below it that have no
	// room of their own.
	name string
	may  []string
	// stdOnly forbids everything that is not the standard library's.
	stdOnly bool
}

// rooms are all there are: a package in none of them is a violation, so that
// a new folder needs a line here.
var rooms = []room{
	{name: ".", stdOnly: true},
	{name: "sql", stdOnly: true},
	{name: "postgres", may: []string{".", "sql", "internal/jsoncheck", "internal/pacedbell"}},
	{name: "redis", may: []string{".", "internal/charts", "internal/cron", "internal/jsoncheck", "internal/pacedbell", "internal/quote", "internal/redis"}},
	{name: "nats", may: []string{".", "internal/cron", "internal/jsoncheck", "internal/localbell", "internal/login", "internal/quote"}},
	{name: "worker", may: []string{".", "internal/fingerprint", "internal/sharedbell"}},
	{name: "email", may: []string{"."}},
	{name: "relay", may: []string{"."}},
	{name: "sink/smtp", may: []string{".", "email", "internal/login"}},
	{name: "sink/funnel", may: []string{".", "relay"}},
	{name: "sink/sinktest", may: []string{"."}},
	{name: "sink/*", may: []string{"."}},
	{name: "source", may: []string{".", "relay"}},
	{name: "broker/*", may: []string{".", "relay", "source", "internal/login", "internal/redis"}},
	{name: "broker/brokertest", may: []string{".", "relay", "source", "sink/sinktest", "worker", "postgres", "redis", "internal/configtest", "internal/devbroker", "internal/testpg", "internal/testrun"}},
	{name: "inbox", may: []string{"."}},
	{name: "server", may: []string{".", "email", "internal/wire", "internal/sharedbell"}},
	{name: "dashboard", may: []string{".", "server", "internal/fingerprint"}},
	{name: "telemetry", may: []string{"."}},
	{name: "telemetry/tracing", may: []string{"."}},
	{name: "codec/*", may: []string{"."}},
	{name: "enginetest", may: []string{"."}},
	{name: "posthastetest", may: []string{".", "postgres", "worker", "internal/memory", "internal/scratch"}},

	{name: "examples/*", may: []string{".", "postgres", "worker", "relay", "sink/*", "source", "broker/*", "codec/*", "inbox", "dashboard"}}, // what users write

	{name: "cmd/*", may: []string{"internal/cli"}},
	{name: "internal/cli", may: []string{".", "sql", "postgres", "redis", "nats", "worker", "email", "sink/*", "source", "inbox", "dashboard", "server", "telemetry", "telemetry/tracing", "codec/*",
		"relay", "internal/bench", "internal/brokers", "internal/catcher", "internal/cron", "internal/devbroker", "internal/devpg", "internal/login", "internal/outbox", "internal/prove", "internal/remote", "internal/sidekiq", "internal/sqlimport", "internal/wire"}},

	// They measure and test the shipped packages, combined as users combine them.
	{name: "internal/bench", may: []string{".", "postgres", "redis", "nats", "server", "worker", "source", "broker/*", "codec/*", "inbox", "relay", "telemetry", "telemetry/tracing", "internal/brokers", "internal/cpumeter", "internal/devpg", "internal/devbroker"}},
	{name: "internal/brokers", may: []string{".", "broker/*", "source"}},
	{name: "internal/chaos", may: []string{".", "postgres", "redis", "nats", "worker", "email", "internal/catcher", "internal/devbroker", "internal/devpg", "internal/history"}},
	{name: "internal/chaos/run", may: []string{"internal/chaos"}},
	{name: "internal/prove", may: []string{".", "postgres", "worker", "internal/history"}}, // in the shipped program: no test rig
	{name: "internal/cpumeter", stdOnly: true},
	{name: "internal/fingerprint", stdOnly: true},
	{name: "internal/cron", may: []string{".", "internal/jsoncheck", "internal/quote"}},
	{name: "internal/cron/crontest"},
	{name: "internal/memory", may: []string{".", "internal/charts", "internal/cron", "internal/jsoncheck", "internal/localbell", "internal/quote"}},
	{name: "internal/wire", may: []string{".", "email", "internal/jsoncheck"}},
	{name: "internal/remote", may: []string{".", "internal/wire"}},
	{name: "internal/scratch", may: []string{"postgres"}},
	{name: "internal/sqlimport", may: []string{".", "postgres"}},
	{name: "internal/testrun", stdOnly: true},
	{name: "internal/testrun/run", may: []string{"internal/testrun"}},
	{name: "internal/testpg", may: []string{"sql", "postgres", "internal/devpg", "internal/testpg/testdb"}},
	{name: "internal/testpg/testdb", may: []string{"internal/devpg"}}, // for the tests inside postgres: not postgres
	{name: "internal/testpg/launch", may: []string{"internal/devpg", "internal/testpg/testdb", "internal/testrun"}},
	{name: "internal/redis", may: []string{".", "internal/login"}},
	{name: "internal/*", may: []string{"."}},
}

// drivers are libraries that speak to PostgreSQL. Outside of internal and cmd
// only package postgres knows them.
var drivers = []string{"github.com/jackc/", "github.com/lib/pq"}

// Violation is an import that the rules forbid.
type Violation struct {
	// File and Line tell where.
	File string
	Line int
	// Import is the imported package; empty if the importing package has no room.
	Import string
	// Why says which rule forbids it.
	Why string
}

// String tells the violation as a compiler would.
func (v Violation) String() string { return fmt.Sprintf("%s:%d: %s", v.File, v.Line, v.Why) }

// Check reads the module in fsys and returns what the rules forbid. Every Go
// file counts, whatever system it is built for, but tests, testdata, modules
// within the module and hidden folders.
func Check(fsys fs.FS) ([]Violation, error) {
	var found []Violation
	names, err := goFiles(fsys)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		more, err := checkFile(fsys, name)
		if err != nil {
			return found, err
		}
		found = append(found, more...)
	}
	return found, err
}

// goFiles returns the Go files of the module in fsys, but not those in testdata, modules
// within the module and hidden folders.
func goFiles(fsys fs.FS) (names []string, err error) {
	err = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && skip(fsys, name):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(name, ".go"):
			names = append(names, name)
		}
		return nil
	})
	return names, err
}

func skip(fsys fs.FS, dir string) bool {
	base := path.Base(dir)
	if base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return true
	}
	_, err := fs.Stat(fsys, path.Join(dir, "go.mod"))
	return err == nil
}

func checkFile(fsys fs.FS, name string) ([]Violation, error) {
	source, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil, err
	}
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, source, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	folder := path.Dir(name)
	r, ok := roomOf(folder)
	if !ok {
		return []Violation{{File: name, Line: files.Position(f.Package).Line,
			Why: fmt.Sprintf("package %s has no room: list its allowed imports in internal/fence", folder)}}, nil
	}
	var found []Violation
	for _, spec := range f.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		if why := r.forbids(folder, imported); why != "" {
			found = append(found, Violation{File: name, Line: files.Position(spec.Pos()).Line, Import: imported, Why: why})
		}
	}
	return found, nil
}

func roomOf(folder string) (room, bool) {
	for _, name := range []string{folder, path.Dir(folder) + "/*"} {
		for _, r := range rooms {
			if r.name == name {
				return r, true
			}
		}
	}
	return room{}, false
}

// forbids returns why a package in folder may not import the path, or "".
func (r room) forbids(folder, imported string) string {
	if own(imported) {
		target := strings.TrimPrefix(strings.TrimPrefix(imported, module), "/")
		if target == "" {
			target = "."
		}
		for _, may := range r.may {
			if may == target || may == path.Dir(target)+"/*" {
				return ""
			}
		}
		return fmt.Sprintf("package %s must not import %s: of this module it may import only %q", folder, imported, r.may)
	}
	first, _, _ := strings.Cut(imported, "/")
	if imported == "C" || !strings.Contains(first, ".") { // the standard library has no dot there
		if imported == "C" {
			return fmt.Sprintf("package %s must not need a C compiler", folder)
		}
		return ""
	}
	if r.stdOnly {
		return fmt.Sprintf("package %s must not import %s: it imports only the standard library", folder, imported)
	}
	inside := strings.HasPrefix(folder, "internal/") || strings.HasPrefix(folder, "cmd/") || strings.HasPrefix(folder, "examples/") || folder == "postgres"
	for _, driver := range drivers {
		if strings.HasPrefix(imported, driver) && !inside {
			return fmt.Sprintf("package %s must not import %s: only package postgres knows the driver", folder, imported)
		}
	}
	return ""
}
