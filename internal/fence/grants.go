package fence

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	grantsFile = "sql/grants.sql"
	reference  = "docs/reference/sql.md"
)

var (
	granted   = regexp.MustCompile(`\('(public|driver|view)', 'posthaste_\w+', '(\w+)'\)`)
	described = regexp.MustCompile(`(?m)^### ([a-z_]+)\(`)
	inString  = regexp.MustCompile(`\bposthaste\.([a-z_]+)\(`)
)

// rigs hold programs that only test the product: they may call inner functions, as the
// owner of the schema.
var rigs = []string{"internal/chaos", "internal/testpg"}

// familiesInGo are functions of the class driver that Go programs call by another name:
// posthaste.lock_key with a number for the family.
var familiesInGo = []string{"bell_key", "doze_key"}

// readGrants maps each function that a role may execute to its class.
func readGrants(fsys fs.FS) (map[string]string, error) {
	text, err := fs.ReadFile(fsys, grantsFile)
	if err != nil {
		return nil, err
	}
	classes := map[string]string{}
	for _, m := range granted.FindAllStringSubmatch(string(text), -1) {
		if classes[m[2]] != "" {
			return nil, fmt.Errorf("%s lists %s twice", grantsFile, m[2])
		}
		classes[m[2]] = m[1]
	}
	return classes, nil
}

// CheckGrants compares the classes of functions in sql/grants.sql with the functions
// that the SQL reference describes, that Go programs call, and that views call.
func CheckGrants(fsys fs.FS) ([]Violation, error) {
	rights, err := readGrants(fsys)
	if err != nil {
		return nil, err
	}
	all, _, err := readFunctions(fsys, nil)
	if err != nil {
		return nil, err
	}
	page, err := fs.ReadFile(fsys, reference)
	if err != nil {
		return nil, err
	}
	want := map[string]string{}
	if err := viewCalls(fsys, all, want); err != nil {
		return nil, err
	}
	if err := goCalls(fsys, all, want); err != nil {
		return nil, err
	}
	for _, name := range familiesInGo {
		want[name] = "driver"
	}
	for _, m := range described.FindAllStringSubmatch(string(page), -1) {
		want[m[1]] = "public"
	}
	var found []Violation
	for name := range all {
		if have := rights[name]; have != want[name] {
			found = append(found, Violation{File: grantsFile, Line: 1, Why: fmt.Sprintf("%s has the class %q, and should have %q: "+
				"%s describes functions of class public, Go programs call others of class driver, views call others of class view", name, have, want[name], reference)})
		}
		delete(rights, name)
	}
	for name := range rights {
		found = append(found, Violation{File: grantsFile, Line: 1, Why: "there is no function " + name})
	}
	return found, nil
}

// viewCalls notes the functions that views call with the rights of the role that reads
// them, and the functions that those call in turn, unless their owner's rights hold.
func viewCalls(fsys fs.FS, all map[string]sqlFunction, want map[string]string) error {
	var note func(name string)
	note = func(name string) {
		if want[name] != "" {
			return
		}
		want[name] = "view"
		if !all[name].definer {
			for callee := range all[name].calls {
				note(callee)
			}
		}
	}
	return sqlFiles(fsys, "sql/views", func(_, text string) {
		for name := range callsIn(text, all) {
			note(name)
		}
	})
}

// goCalls notes the functions that string literals of Go programs call.
func goCalls(fsys fs.FS, all map[string]sqlFunction, want map[string]string) error {
	return fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && (skip(fsys, name) || slices.Contains(rigs, name)) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		source, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		maps.Copy(want, callsInGo(file, all))
		return nil
	})
}

func callsInGo(file *ast.File, all map[string]sqlFunction) map[string]string {
	calls := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil {
			return true
		}
		for _, m := range inString.FindAllStringSubmatch(text, -1) {
			if _, ok := all[m[1]]; ok {
				calls[m[1]] = "driver"
			}
		}
		return true
	})
	return calls
}
