//go:build unix

package cli

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "write the table of commands in docs/reference/cli.md")

// The document of the command line lists each command as its help describes it, and the flags that
// all commands have.
func TestCommandsAreInTheReference(t *testing.T) {
	t.Parallel()
	const file, head = "../../docs/reference/cli.md", "| command | purpose |\n|---|---|\n"
	document, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, table, found := strings.Cut(string(document), head)
	if !found {
		t.Fatalf("%s has no table of commands", file)
	}
	var rows strings.Builder
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			if c.Name() == "help" || c.Name() == "completion" || c.Hidden {
				continue
			}
			if c.HasParent() && (c.Runnable() && !c.HasSubCommands() || c.Flags().Lookup("database-url") != nil) {
				use := strings.TrimPrefix(c.Parent().CommandPath()+" "+c.Use, "posthaste ")
				rows.WriteString("| `" + strings.ReplaceAll(use, "|", `\|`) + "` | " + c.Short + " |\n")
			}
			walk(c)
		}
	}
	walk(newProgram(nil).root)
	if table != rows.String() {
		if *update {
			if err := os.WriteFile(file, []byte(before+head+rows.String()), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		t.Errorf("%s has another table of commands than\n%s\nrun: go test ./internal/cli -run TestCommandsAreInTheReference -update", file, rows.String())
	}
	text := strings.Join(strings.Fields(before), " ")
	for _, want := range append(formats, "--watch", "--interval", "--context", "--yes", "NO_COLOR", "POSTHASTE_CONTEXT") {
		if !strings.Contains(text, "`"+want) {
			t.Errorf("%s does not tell of %s", file, want)
		}
	}
}
