package fence

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
)

// checkSources type-checks a package of the given files. They can import nothing.
func checkSources(t *testing.T, sources map[string]string) *checked {
	t.Helper()
	names := token.NewFileSet()
	var files []*ast.File
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		f, err := parser.ParseFile(names, name, "package p\n"+sources[name], parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	c, err := check(names, nil, module+"/p", files)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestOwnershipCircles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, source, circle string }{
		{"one direction", "type A struct { b B; c C }; type B struct { c C }; type C struct{}", ""},
		{"a type that holds itself", "type A struct { next *A }", ""},
		{"pointers", "type A struct { b *B }; type B struct { c *C }; type C struct { a *A }", "A B C"},
		{"containers", "type A struct { b []B }; type B struct { c map[string]*C }; type C struct { d chan [2]*D }; type D struct { a map[*A]int }", "A B C D"},
		{"an embedded field", "type A struct { *B }; type B struct { A }", "A B"},
		{"an unnamed struct", "type A struct { in struct { b *B } }; type B struct { a *A }", "A B"},
		{"a named container", "type A struct { l list }; type list []*A", "A list"},
		{"an alias", "type A struct { b *alias }; type B struct { a *A }; type alias = B", "A B"},
		{"a type argument", "type cell[T any] struct { v *T }; type A struct { b cell[B] }; type B struct { a *A }", "A B"},
		{"a generic type", "type A struct { b *B[int] }; type B[T any] struct { a *A; v T }", "A B"},
		{"an interface", "type A struct { r ringer }; type ringer interface { ring() }; type B struct { a *A }; func (*B) ring() {}", "A B"},
		{"an empty interface", "type A struct { v value }; type value interface{}; type B struct { a *A }", ""},
		{"a function", "type A struct { b func() *B }; type B struct { a *A }", ""},
		{"the larger of two", "type A struct { b *B }; type B struct { a *A }; type C struct { d *D }; type D struct { e *E }; type E struct { c *C }", "C D E"},
	} {
		found := strings.Join(checkSources(t, map[string]string{"p.go": c.source}).ownership().largestCircle(), " ")
		if found != c.circle {
			t.Errorf("%s: found %q, want %q", c.name, found, c.circle)
		}
	}
}

func TestFileCircles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		sources map[string]string
		circle  string
	}{
		{"one direction", map[string]string{"a.go": "func a() { b() }", "b.go": "func b() { c() }", "c.go": "func c() {}"}, ""},
		{"functions", map[string]string{"a.go": "func a() { b() }", "b.go": "func b() { c() }", "c.go": "func c() { a() }"}, "a.go b.go c.go"},
		{"a constant and a type", map[string]string{"a.go": "const size = 4; var shared B", "b.go": "type B [size]int"}, "a.go b.go"},
		{"methods belong to the file of their type", map[string]string{
			"a.go": "type A struct{}; func a() { A{}.more() }", "b.go": "func (A) more() { help() }", "c.go": "func help() {}"}, ""},
		{"a method in another file", map[string]string{
			"a.go": "type A struct{}", "b.go": "func (*A) more() { help() }", "c.go": "func help() { new(A).more() }"}, "a.go c.go"},
		{"a method of a generic type", map[string]string{
			"a.go": "type A[T any] struct{}", "b.go": "func (*A[T]) more() { help() }", "c.go": "func help() { new(A[int]).more() }"}, "a.go c.go"},
	} {
		found := strings.Join(checkSources(t, c.sources).fileDependencies().largestCircle(), " ")
		if found != c.circle {
			t.Errorf("%s: found %q, want %q", c.name, found, c.circle)
		}
	}
}
