package fence

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// functions is the folder of the ledger's SQL functions. Its README.md numbers the
// rooms in reading order.
const functions = "sql/functions"

// sqlFunction is one function of the ledger.
type sqlFunction struct {
	file  string
	room  string
	inner bool
	// definer says that it runs with its owner's rights.
	definer bool
	// calls maps the functions that it calls to the line of the first call.
	calls map[string]int
}

var (
	listedRoom = regexp.MustCompile(`(?m)^\d+\. \*\*([a-z]+)\*\*: `)
	sqlComment = regexp.MustCompile(`(?m)(?:^|\s)--(?: .*)?$`)
	// sqlRaise is a statement whose hint may name functions that a person calls.
	sqlRaise  = regexp.MustCompile(`(?s)\braise (?:exception|warning|notice)\b[^;]*;`)
	sqlCall   = regexp.MustCompile(`\bposthaste\.([a-z_]+)\s*\(`)
	sqlCreate = regexp.MustCompile(`(?m)^create or replace function posthaste\.([a-z_]+)\(`)
)

// CheckFunctions reads the SQL functions of the module in fsys and returns what the
// rules of sql/functions/README.md forbid.
func CheckFunctions(fsys fs.FS) ([]Violation, error) {
	page, err := fs.ReadFile(fsys, functions+"/README.md")
	if err != nil {
		return nil, err
	}
	var order []string
	for _, m := range listedRoom.FindAllStringSubmatch(string(page), -1) {
		order = append(order, m[1])
	}
	all, found, err := readFunctions(fsys, order)
	if err != nil {
		return nil, err
	}
	called := map[string]bool{} // from another room, a view or a table
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f := all[name]
		for _, callee := range slices.Sorted(maps.Keys(f.calls)) {
			called[callee] = called[callee] || all[callee].room != f.room
			if why := f.mayNotCall(all[callee], order); why != "" {
				found = append(found, Violation{File: f.file, Line: f.calls[callee], Why: fmt.Sprintf("%s must not call %s: %s", name, callee, why)})
			}
		}
	}
	for _, folder := range []string{"sql/views", "sql/migrations"} {
		err := sqlFiles(fsys, folder, func(file, text string) {
			for callee := range callsIn(text, all) {
				called[callee] = true
			}
		})
		if err != nil {
			return nil, err
		}
	}
	rights, err := readGrants(fsys)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f := all[name]
		// What only the functions of a view call is granted, and inner all the same.
		outside := called[name] || rights[name] == "public" || rights[name] == "driver"
		switch {
		case f.inner && outside:
			found = append(found, Violation{File: f.file, Line: 1, Why: name + " is called from outside of its room: move it out of the folder inner"})
		case !f.inner && !outside:
			found = append(found, Violation{File: f.file, Line: 1, Why: name + " is called by its own room alone: move it into the folder inner"})
		}
	}
	return found, nil
}

// mayNotCall says why f may not call another function, or "".
func (f sqlFunction) mayNotCall(callee sqlFunction, order []string) string {
	switch {
	case f.room == callee.room:
		return ""
	case callee.inner:
		return fmt.Sprintf("it is an inner function of room %s", callee.room)
	case slices.Index(order, callee.room) > slices.Index(order, f.room):
		return fmt.Sprintf("room %s comes after room %s", callee.room, f.room)
	}
	return ""
}

// readFunctions reads the functions by name, and returns the files that are not where
// a function belongs.
func readFunctions(fsys fs.FS, order []string) (map[string]sqlFunction, []Violation, error) {
	var found []Violation
	all, texts, used := map[string]sqlFunction{}, map[string]string{}, map[string]bool{}
	err := sqlFiles(fsys, functions, func(file, text string) {
		wrong := func(why string, args ...any) {
			found = append(found, Violation{File: file, Line: 1, Why: fmt.Sprintf(why, args...)})
		}
		name := strings.TrimSuffix(path.Base(file), ".sql")
		f := sqlFunction{file: file, room: strings.TrimPrefix(path.Dir(file), functions+"/"), definer: strings.Contains(sqlComment.ReplaceAllString(text, ""), "security definer")}
		f.room, f.inner = strings.CutSuffix(f.room, "/inner")
		if !slices.Contains(order, f.room) {
			wrong("the folder %s is no room of %s/README.md, and not the folder inner of one", path.Dir(file), functions)
		}
		if other, twice := all[name]; twice {
			wrong("%s has the same base name", other.file)
		}
		if created := sqlCreate.FindAllStringSubmatch(text, -1); !createsOnly(created, name) {
			wrong("the file must create the function posthaste.%s, with its overloads, and no other", name)
		}
		all[name], texts[name], used[f.room] = f, text, true
	})
	for name, f := range all {
		f.calls = callsIn(texts[name], all)
		delete(f.calls, name)
		all[name] = f
	}
	for _, room := range order {
		if !used[room] {
			found = append(found, Violation{File: functions + "/README.md", Line: 1, Why: fmt.Sprintf("room %s has no files", room)})
		}
	}
	return all, found, err
}

// createsOnly reports whether a file's create statements are of one name.
func createsOnly(created [][]string, name string) bool {
	return len(created) > 0 && !slices.ContainsFunc(created, func(m []string) bool { return m[1] != name })
}

// callsIn finds the functions that a text of SQL calls, and the line of the first call.
func callsIn(text string, all map[string]sqlFunction) map[string]int {
	blank := func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) }
	text = sqlComment.ReplaceAllString(text, "")
	text = sqlRaise.ReplaceAllStringFunc(text, blank)
	calls := map[string]int{}
	for _, at := range sqlCall.FindAllStringSubmatchIndex(text, -1) {
		name := text[at[2]:at[3]]
		if _, ok := all[name]; ok && calls[name] == 0 {
			calls[name] = 1 + strings.Count(text[:at[0]], "\n")
		}
	}
	return calls
}

// sqlFiles calls do with each SQL file below a folder and its text.
func sqlFiles(fsys fs.FS, folder string, do func(file, text string)) error {
	return fs.WalkDir(fsys, folder, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(file) != ".sql" {
			return err
		}
		text, err := fs.ReadFile(fsys, file)
		if err == nil {
			do(file, string(text))
		}
		return err
	})
}
