package fence

import (
	"go/ast"
	"go/token"
	"slices"
)

// bubbles are the parts of a package's tests that run in bubbles of testing/synctest only,
// where time is virtual and sleeping exact. They are found by name:
//
//   - a function passed to synctest.Test, or to a function that calls its parameters only in
//     bubbles;
//   - an unexported function if all its uses are in bubbles;
//   - the methods of a type if all its values are made in bubbles.
//
// Code that is not recognized counts as running outside.
type bubbles struct {
	files []*ast.File
	// uses are the places of names. They exclude declarations, signatures, pointers and what
	// follows a dot.
	uses map[string][]token.Pos
	// types are those that the files declare, with the bodies of their methods.
	types map[string][]ast.Node
	// runners are the functions that call their parameters only in bubbles.
	runners map[string]bool
	spans   map[span]bool
}

type span struct{ from, to token.Pos }

// findBubbles reads the test files of one folder. Their positions are of one file set.
func findBubbles(files []*ast.File) *bubbles {
	b := &bubbles{files, map[string][]token.Pos{}, map[string][]ast.Node{}, map[string]bool{}, map[span]bool{}}
	methods := map[string][]ast.Node{}
	for _, f := range files {
		for _, d := range f.Decls {
			ast.Inspect(d, b.collect)
			if d, ok := d.(*ast.FuncDecl); ok && d.Recv != nil && d.Body != nil {
				methods[methodOf(d)] = append(methods[methodOf(d)], d.Body)
			}
		}
	}
	for name := range b.types {
		b.types[name] = methods[name]
	}
	for before := -1; before < b.size(); {
		before = b.size()
		for _, f := range files {
			ast.Inspect(f, b.arguments)
			for _, d := range f.Decls {
				if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
					b.declaration(d)
				}
			}
		}
	}
	return b
}

func (b *bubbles) size() int { return len(b.runners) + len(b.spans) }

// has reports whether the code at a position runs in bubbles only.
func (b *bubbles) has(at token.Pos) bool {
	for s := range b.spans {
		if s.from <= at && at < s.to {
			return true
		}
	}
	return false
}

func (b *bubbles) put(n ast.Node) { b.spans[span{n.Pos(), n.End()}] = true }

// collect adds the names in n to uses and types.
func (b *bubbles) collect(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.Ident:
		b.uses[n.Name] = append(b.uses[n.Name], n.Pos())
	case *ast.FuncType:
		return false
	case *ast.FuncDecl:
		if n.Body != nil {
			ast.Inspect(n.Body, b.collect)
		}
		return false
	case *ast.TypeSpec:
		b.types[n.Name.Name] = nil
		ast.Inspect(n.Type, b.collect)
		return false
	case *ast.SelectorExpr:
		ast.Inspect(n.X, b.collect)
		return false
	case *ast.StarExpr:
		_, name := n.X.(*ast.Ident)
		return !name
	}
	return true
}

// arguments adds the functions that are passed to runners.
func (b *bubbles) arguments(n ast.Node) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return true
	}
	runs := false
	switch f := call.Fun.(type) {
	case *ast.Ident:
		runs = b.runners[f.Name]
	case *ast.SelectorExpr:
		x, ok := f.X.(*ast.Ident)
		runs = ok && x.Name == "synctest" && f.Sel.Name == "Test"
	}
	for _, arg := range call.Args {
		switch arg.(type) {
		case *ast.Ident, *ast.FuncLit:
			if runs {
				b.put(arg)
			}
		}
	}
	return true
}

// declaration adds a function's body if it runs in bubbles only, and the function to the
// runners if it is one.
func (b *bubbles) declaration(d *ast.FuncDecl) {
	if d.Recv != nil {
		name := methodOf(d)
		if own, ok := b.types[name]; ok && b.all(b.uses[name], own...) {
			b.put(d.Body)
		}
		return
	}
	if !d.Name.IsExported() && b.all(b.uses[d.Name.Name], d.Body) {
		b.put(d.Body)
	}
	var calls []token.Pos
	for _, field := range d.Type.Params.List {
		if _, ok := field.Type.(*ast.FuncType); !ok {
			continue
		}
		for _, name := range field.Names {
			for _, at := range b.uses[name.Name] {
				if within(d.Body, at) {
					calls = append(calls, at)
				}
			}
		}
	}
	if b.all(calls) {
		b.runners[d.Name.Name] = true
	}
}

// all reports whether there are uses outside of the declaration itself, and all of them are in
// bubbles.
func (b *bubbles) all(uses []token.Pos, itself ...ast.Node) bool {
	some := false
	for _, at := range uses {
		if slices.ContainsFunc(itself, func(n ast.Node) bool { return within(n, at) }) {
			continue
		}
		if !b.has(at) {
			return false
		}
		some = true
	}
	return some
}

func within(n ast.Node, at token.Pos) bool { return n.Pos() <= at && at < n.End() }

// methodOf returns the name of a method's type.
func methodOf(d *ast.FuncDecl) string {
	t := d.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if name, ok := t.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}
