package fence

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// checked is one package of this module, type-checked without its tests.
type checked struct {
	folder string
	names  *token.FileSet
	files  []*ast.File
	types  *types.Package
	uses   map[*ast.Ident]types.Object
	defs   map[*ast.Ident]types.Object
}

// listed is what `go list` says about a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles, Imports        []string
}

// load type-checks the packages of this module in dir. Other packages come from the
// compiler's export data: they are compiled once, while this module's packages change
// often and are type-checked from source.
func load(ctx context.Context, dir string) ([]*checked, error) {
	found, err := list(ctx, dir, "-deps", "-json=ImportPath,Dir,GoFiles,Imports", "./...")
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(p listed) bool { return !own(p.ImportPath) })
	args := []string{"-export", "-json=ImportPath,Export"}
	for _, p := range found {
		for _, imported := range p.Imports {
			if !own(imported) && imported != "unsafe" {
				args = append(args, imported)
			}
		}
	}
	others, err := list(ctx, dir, args...)
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	for _, p := range others {
		exports[p.ImportPath] = p.Export
	}
	names := token.NewFileSet()
	imports := packages{own: map[string]*types.Package{}}
	imports.others = importer.ForCompiler(names, "gc", func(imported string) (io.ReadCloser, error) {
		return os.Open(exports[imported])
	})
	var all []*checked
	for _, p := range found { // each after its imports
		var files []*ast.File
		for _, file := range p.GoFiles {
			f, err := parser.ParseFile(names, filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			files = append(files, f)
		}
		c, err := check(names, imports, p.ImportPath, files)
		if err != nil {
			return nil, err
		}
		imports.own[p.ImportPath] = c.types
		all = append(all, c)
	}
	return all, nil
}

// list runs `go list`.
func list(ctx context.Context, dir string, args ...string) ([]listed, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list"}, args...)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), "GOOS=linux") // the same files, and so the same numbers, on every system
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("output of go list: %w", err)
		}
		all = append(all, p)
	}
}

// packages imports this module's packages as they were type-checked, and others by
// their export data.
type packages struct {
	own    map[string]*types.Package
	others types.Importer
}

func (p packages) Import(imported string) (*types.Package, error) {
	if c := p.own[imported]; c != nil {
		return c, nil
	}
	return p.others.Import(imported)
}

// own reports whether a package belongs to this module.
func own(imported string) bool { return imported == module || strings.HasPrefix(imported, module+"/") }

func check(names *token.FileSet, imports types.Importer, imported string, files []*ast.File) (*checked, error) {
	c := &checked{folder: folderOf(imported), names: names, files: files,
		uses: map[*ast.Ident]types.Object{}, defs: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: imports}
	var err error
	c.types, err = config.Check(imported, names, files, &types.Info{Uses: c.uses, Defs: c.defs})
	return c, err
}

// folderOf returns the folder of a package of this module; the root is ".".
func folderOf(imported string) string {
	return path.Clean(strings.TrimPrefix(strings.TrimPrefix(imported, module), "/"))
}
