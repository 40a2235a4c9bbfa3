package fence

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Bounds of the measures. Values above them are counted; see testdata/ratchets.txt.
const (
	maxFunctionLines = 60
	maxFileLines     = 500
)

// counts are the places in a folder's Go files that exceed a bound.
type counts struct {
	longFunctions, longTestFunctions, longFiles []string
	// sleeps are the calls of time.Sleep in tests and in packages that tests use, except in
	// bubbles.
	sleeps []string
	calls  []token.Pos // all calls of time.Sleep
	tests  []*ast.File
	// longest is the number of lines of the longest function outside of tests.
	longest int
	habits  habits
}

// count reads the Go files of the module in fsys and counts by folder.
func count(fsys fs.FS) (map[string]*counts, error) {
	all := map[string]*counts{}
	files, err := goFiles(fsys)
	names := token.NewFileSet()
	for _, name := range files {
		folder := path.Dir(name)
		if all[folder] == nil {
			all[folder] = &counts{}
		}
		if err := all[folder].add(fsys, names, name); err != nil {
			return nil, err
		}
	}
	for _, c := range all {
		virtual := findBubbles(c.tests)
		for _, at := range c.calls {
			if !virtual.has(at) {
				c.sleeps = append(c.sleeps, names.Position(at).String())
			}
		}
	}
	return all, err
}

func (c *counts) add(fsys fs.FS, names *token.FileSet, name string) error {
	source, err := fs.ReadFile(fsys, name)
	if err != nil {
		return err
	}
	f, err := parser.ParseFile(names, name, source, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if lines := bytes.Count(source, []byte("\n")); lines > maxFileLines {
		c.longFiles = append(c.longFiles, fmt.Sprintf("%s has %d lines", name, lines))
	}
	test := isTest(f, name)
	c.habits.add(f, names, test)
	if strings.HasSuffix(name, "_test.go") {
		c.tests = append(c.tests, f)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			lines := names.Position(n.End()).Line - names.Position(n.Pos()).Line + 1
			place := fmt.Sprintf("%s: %s has %d lines", names.Position(n.Pos()), n.Name.Name, lines)
			switch {
			case test && lines > maxFunctionLines:
				c.longTestFunctions = append(c.longTestFunctions, place)
			case lines > maxFunctionLines:
				c.longFunctions = append(c.longFunctions, place)
			}
			if !test {
				c.longest = max(c.longest, lines)
			}
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && test && x.Name == "time" && n.Sel.Name == "Sleep" {
				c.calls = append(c.calls, n.Pos())
			}
		}
		return true
	})
	return nil
}

// isTest reports whether a file is a test, or part of a package that only tests use.
func isTest(f *ast.File, name string) bool {
	return strings.HasSuffix(name, "_test.go") ||
		slices.ContainsFunc(f.Imports, func(spec *ast.ImportSpec) bool { return spec.Path.Value == `"testing"` })
}
