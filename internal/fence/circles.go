package fence

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// graph names for each node the nodes that it depends on, and an example of why.
type graph map[string]map[string]string

func (g graph) add(from, to, why string) {
	if g[from] == nil {
		g[from] = map[string]string{}
	}
	if from != to && g[from][to] == "" {
		g[from][to] = why
	}
}

// largestCircle returns the nodes of the largest set in which each node depends on each
// other, directly or through others of the set. A node alone is no circle.
func (g graph) largestCircle() []string {
	reached := map[string]map[string]bool{}
	var visit func(seen map[string]bool, node string)
	visit = func(seen map[string]bool, node string) {
		for next := range g[node] {
			if !seen[next] {
				seen[next] = true
				visit(seen, next)
			}
		}
	}
	for node := range g {
		reached[node] = map[string]bool{}
		visit(reached[node], node)
	}
	var largest []string
	for _, node := range slices.Sorted(maps.Keys(g)) {
		var circle []string
		for other := range reached[node] {
			if reached[other][node] {
				circle = append(circle, other)
			}
		}
		if len(circle) > len(largest) {
			largest = circle
		}
	}
	slices.Sort(largest)
	return largest
}

// uses returns the dependencies between nodes of a circle, with their examples.
func (g graph) uses(circle []string) []string {
	var all []string
	for _, from := range circle {
		for _, to := range circle {
			if why, ok := g[from][to]; ok {
				all = append(all, strings.TrimSpace(from+" → "+to+" "+why))
			}
		}
	}
	return all
}

// ownership returns which types of the package hold which others in their fields: by
// value, pointer, slice, array, map, channel or type argument. A field whose type is an
// interface of the package holds each type of the package that implements it. Functions
// hold nothing.
func (c *checked) ownership() graph {
	g := graph{}
	for _, name := range c.types.Scope().Names() {
		if owner, ok := c.types.Scope().Lookup(name).(*types.TypeName); ok && !owner.IsAlias() {
			c.held(owner.Type().Underlying(), func(to *types.TypeName) { g.add(name, to.Name(), "") })
		}
	}
	return g
}

// held calls found for each type of the package that a value of type t holds.
func (c *checked) held(t types.Type, found func(*types.TypeName)) {
	switch t := types.Unalias(t).(type) {
	case *types.Pointer:
		c.held(t.Elem(), found)
	case *types.Slice:
		c.held(t.Elem(), found)
	case *types.Array:
		c.held(t.Elem(), found)
	case *types.Chan:
		c.held(t.Elem(), found)
	case *types.Map:
		c.held(t.Key(), found)
		c.held(t.Elem(), found)
	case *types.Struct:
		for field := range t.Fields() {
			c.held(field.Type(), found)
		}
	case *types.Named:
		for argument := range t.TypeArgs().Types() {
			c.held(argument, found)
		}
		if t.Obj().Pkg() != c.types {
			return
		}
		if kind, ok := t.Underlying().(*types.Interface); ok {
			c.implementers(kind, found)
		} else {
			found(t.Obj())
		}
	}
}

// implementers calls found for each type of the package that implements kind.
func (c *checked) implementers(kind *types.Interface, found func(*types.TypeName)) {
	if kind.NumMethods() == 0 {
		return
	}
	for _, name := range c.types.Scope().Names() {
		obj, ok := c.types.Scope().Lookup(name).(*types.TypeName)
		if ok && !types.IsInterface(obj.Type()) && types.Implements(types.NewPointer(obj.Type()), kind) {
			found(obj)
		}
	}
}

// fileDependencies returns which files of the package use package-level declarations of
// which others. A method counts as part of the file of its type. A use of a method is not
// counted: the file reaches the method's type through the value that it uses.
func (c *checked) fileDependencies() graph {
	g := graph{}
	for _, f := range c.files {
		for _, d := range f.Decls {
			from := c.fileOf(d.Pos())
			if function, ok := d.(*ast.FuncDecl); ok && function.Recv != nil {
				from = c.fileOf(receiver(c.defs[function.Name].(*types.Func)).Pos())
			}
			ast.Inspect(d, func(n ast.Node) bool {
				name, ok := n.(*ast.Ident)
				if !ok {
					return true
				}
				if used := c.uses[name]; used != nil && used.Parent() == c.types.Scope() {
					g.add(from, c.fileOf(used.Pos()), "("+name.Name+")")
				}
				return true
			})
		}
	}
	return g
}

func (c *checked) fileOf(pos token.Pos) string { return filepath.Base(c.names.Position(pos).Filename) }

// receiver returns the type that a method belongs to.
func receiver(method *types.Func) *types.TypeName {
	t := types.Unalias(method.Signature().Recv().Type())
	if pointer, ok := t.(*types.Pointer); ok {
		t = types.Unalias(pointer.Elem())
	}
	return t.(*types.Named).Obj()
}
