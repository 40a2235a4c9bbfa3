//go:build unix

package cli

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// readVariable matches the reading of an environment variable.
var readVariable = regexp.MustCompile(`os\.(?:Getenv|LookupEnv)\("([A-Z_]+)"\)`)

// The page about configuration has each environment variable: those of flags with the
// commands that have them, and those that the program reads by name.
func TestConfigurationReference(t *testing.T) {
	t.Parallel()
	const file = "../../docs/reference/configuration.md"
	before := compareGenerated(t, file, variableReference())
	names := map[string]bool{}
	for _, name := range wellKnown {
		names[name] = true
	}
	for _, pattern := range []string{"*.go", "../devpg/*.go"} {
		sources, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, source := range sources {
			text, err := os.ReadFile(source)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range readVariable.FindAllSubmatch(text, -1) {
				names[string(m[1])] = names[string(m[1])] || !strings.HasSuffix(source, "_test.go")
			}
		}
	}
	if len(names) < 10 {
		t.Errorf("only %d variables were found", len(names))
	}
	for name, used := range names {
		if used && !strings.Contains(before, "`"+name+"`") {
			t.Errorf("%s does not have the variable %s", file, name)
		}
	}
}

// variableReference returns a table of the environment variables of all flags.
func variableReference() string {
	root := newProgram(nil).root
	rows := map[string][]string{} // the commands by flag
	commands := documented(root)
	for _, c := range commands {
		for _, f := range flagsOf(c.LocalFlags()) {
			rows[f.Name] = append(rows[f.Name], fmt.Sprintf("[%s](cli.md#%s)", pathOf(c), strings.ReplaceAll(pathOf(c), " ", "-")))
		}
	}
	for _, f := range flagsOf(root.PersistentFlags()) {
		rows[f.Name] = []string{"[all](cli.md#flags-of-all-commands)"}
	}
	for _, f := range storeFlags() {
		rows[f.Name] = []string{"[all that use a store](cli.md#flags-that-select-the-store)"}
	}
	var text strings.Builder
	text.WriteString("\n| variable | flag | commands |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(&text, "| `%s` | `--%s` | %s |\n", envName(name), name, strings.Join(rows[name], ", "))
	}
	return text.String()
}
