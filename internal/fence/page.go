package fence

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// tableHead is the first line of the table of folders in ARCHITECTURE.md.
const tableHead = "| folder | holds | may import |\n"

var quoted = regexp.MustCompile("`([^`]+)`")

// fillTable returns page with the last column of its table of folders written from the
// rooms, and the folders that the table names.
func fillTable(page string) (filled string, folders []string, err error) {
	before, table, ok := strings.Cut(page, tableHead)
	if !ok {
		return "", nil, fmt.Errorf("no table that begins with %q", tableHead)
	}
	table, after, _ := strings.Cut(table, "\n\n")
	lines := strings.Split(table, "\n")
	for i, line := range lines[1:] {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			return "", nil, fmt.Errorf("%q has %d cells; expected 3", line, len(cells)-2)
		}
		imports := ""
		for j, name := range quoted.FindAllStringSubmatch(cells[1], -1) {
			room, ok := roomOf(name[1])
			if !ok {
				return "", nil, fmt.Errorf("%s has no room; add one in internal/fence/fence.go, or remove it from the table", name[1])
			}
			if j > 0 && room.imports() != imports {
				return "", nil, fmt.Errorf("the folders of %s may import different packages; give each a row", cells[1])
			}
			imports = room.imports()
			folders = append(folders, name[1])
		}
		lines[i+1] = fmt.Sprintf("|%s|%s| %s |", cells[1], cells[2], imports)
	}
	return before + tableHead + strings.Join(lines, "\n") + "\n\n" + after, folders, nil
}

// imports lists what a package of the room may import, as Markdown.
func (r room) imports() string {
	var names []string
	if r.stdOnly {
		names = append(names, "the standard library")
	}
	for _, name := range r.may {
		if name == "." {
			names = append(names, "root")
		} else {
			names = append(names, "`"+name+"`")
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// named reports whether folders holds folder or "parent/*".
func named(folders []string, folder string) bool {
	return slices.Contains(folders, folder) || slices.Contains(folders, path.Dir(folder)+"/*")
}
