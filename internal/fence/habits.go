package fence

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// habits are the places in a folder's Go files that break a habit of this module.
type habits struct {
	// contexts are struct fields of type context.Context outside of tests.
	contexts []string
	// texts are comparisons with the text of an error, and calls of fmt.Sscanf, outside of
	// tests.
	texts []string
	// names are imports whose name is that of the package anyway.
	names []string
	// groups are files whose imports are not in three groups.
	groups []string
}

// add looks at one file. places gives positions, and test says whether it is a test.
func (h *habits) add(f *ast.File, places *token.FileSet, test bool) {
	h.addImports(f, places)
	if test {
		return
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StructType:
			for _, field := range n.Fields.List {
				if isSelector(field.Type, "context", "Context") {
					h.contexts = append(h.contexts, places.Position(field.Pos()).String())
				}
			}
		case *ast.CallExpr:
			if isSelector(n.Fun, "fmt", "Sscanf") || looksInto(n.Fun) && len(n.Args) > 0 && isErrorText(n.Args[0]) {
				h.texts = append(h.texts, places.Position(n.Pos()).String())
			}
		case *ast.BinaryExpr:
			if (n.Op == token.EQL || n.Op == token.NEQ) && (isErrorText(n.X) || isErrorText(n.Y)) {
				h.texts = append(h.texts, places.Position(n.Pos()).String())
			}
		}
		return true
	})
}

// looksInto reports whether e is a function of package strings that looks for something in a text.
func looksInto(e ast.Expr) bool {
	return slices.ContainsFunc([]string{"Contains", "HasPrefix", "HasSuffix", "EqualFold", "Index"}, func(name string) bool { return isSelector(e, "strings", name) })
}

// isSelector reports whether e is x.name.
func isSelector(e ast.Expr, x, name string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	left, ok := s.X.(*ast.Ident)
	return ok && left.Name == x && s.Sel.Name == name
}

// isErrorText reports whether e calls Error of something without arguments.
func isErrorText(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) != 0 {
		return false
	}
	s, ok := call.Fun.(*ast.SelectorExpr)
	return ok && s.Sel.Name == "Error"
}

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

func (h *habits) addImports(f *ast.File, places *token.FileSet) {
	last, lastLine, sorted := 0, 0, true
	for _, spec := range f.Imports {
		of, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		name := path.Base(of)
		if majorVersion.MatchString(name) {
			name = path.Base(path.Dir(of))
		}
		if spec.Name != nil && spec.Name.Name == name {
			h.names = append(h.names, fmt.Sprintf("%s: %s", places.Position(spec.Pos()), of))
		}
		group, line := importGroup(of), places.Position(spec.Pos()).Line
		apart := line > lastLine+1
		if spec.Doc != nil {
			apart = places.Position(spec.Doc.Pos()).Line > lastLine+1
		}
		if lastLine > 0 && (group < last || apart != (group > last)) {
			sorted = false
		}
		last, lastLine = group, line
	}
	if !sorted {
		h.groups = append(h.groups, places.Position(f.Pos()).Filename)
	}
}

// importGroup is the group in which a package is imported: 0 for the standard library, 1 for other
// modules, 2 for this one.
func importGroup(of string) int {
	first, _, _ := strings.Cut(of, "/")
	switch {
	case own(of):
		return 2
	case strings.Contains(first, "."):
		return 1
	}
	return 0
}
