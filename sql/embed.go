// Package ledger holds the PostgreSQL side of Posthaste: the tables as numbered migrations, and
// the functions and views, which are applied again after each change. All of it also works with
// psql alone.
package ledger

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"
)

// Files holds bootstrap.sql, roles.sql, grants.sql and the folders migrations,
// functions and views. Package postgres says in which order they are applied.
//
//go:embed bootstrap.sql roles.sql grants.sql migrations/*.sql functions/*/*.sql functions/*/inner/*.sql views/*.sql
var Files embed.FS

// functions maps the base name of each function's file to its path in Files.
var functions = sync.OnceValues(func() (map[string]string, error) {
	paths := map[string]string{}
	err := fs.WalkDir(Files, "functions", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".sql") {
			return err
		}
		if other, taken := paths[path.Base(file)]; taken {
			return fmt.Errorf("%s and %s have the same base name", other, file)
		}
		paths[path.Base(file)] = file
		return nil
	})
	return paths, err
})

// Function returns the text of a function's file by its base name, such as
// "claim.sql", in whichever folder below functions it lies.
func Function(base string) (string, error) {
	paths, err := functions()
	if err != nil {
		return "", err
	}
	file, ok := paths[base]
	if !ok {
		return "", fmt.Errorf("no file below functions is named %q", base)
	}
	text, err := Files.ReadFile(file)
	return string(text), err
}

// Functions returns the texts of all functions' files by their base names.
func Functions() (map[string]string, error) {
	paths, err := functions()
	if err != nil {
		return nil, err
	}
	texts := make(map[string]string, len(paths))
	for base := range paths {
		if texts[base], err = Function(base); err != nil {
			return nil, err
		}
	}
	return texts, nil
}
