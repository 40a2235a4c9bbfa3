package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The help of each flag names its type, and no backquoted word instead. An invalid value
// fails without the error text of a package.
func TestFlagsAreTold(t *testing.T) {
	t.Parallel()
	flags := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			walk(c)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			flags++
			name, usage := pflag.UnquoteUsage(f)
			if strings.Contains(name, " ") || usage != f.Usage || usage == "" {
				t.Errorf("%s --%s has the help %q: %q", cmd.CommandPath(), f.Name, name, f.Usage)
			}
			if f.Value.Type() == "string" || f.Value.Type() == "stringArray" || f.Name == "help" {
				return
			}
			const wrong = `a"b`
			err := f.Value.Set(wrong)
			if err == nil {
				t.Errorf("%s --%s takes %q", cmd.CommandPath(), f.Name, wrong)
			} else if told := wrongValue(f, wrong, err); strings.Contains(told, "strconv") || strings.Contains(told, "parse error") || !strings.Contains(told, "must") {
				t.Errorf("%s --%s %s", cmd.CommandPath(), f.Name, told)
			}
		})
	}
	walk(newRoot(&app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}))
	if flags < 100 {
		t.Errorf("only %d flags", flags)
	}
}
