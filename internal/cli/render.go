package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posthaste-mq/posthaste"
)

// outputFlags adds the flags that select the format.
func (a *app) outputFlags(root *cobra.Command, flags *pflag.FlagSet) {
	flags.VarP(&choice{values: formats, set: func(s string) { a.output = format(s) }}, "output", "o",
		"format of output and errors: table, json (one line), yaml, or jsonl (one line for each item of a list)")
	flags.BoolVar(&a.json, "json", false, "short for --output json")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// chooseFormat decides between --output and --json. A flag on the command line overrides
// variables.
func (a *app) chooseFormat(flags *pflag.FlagSet) error {
	switch {
	case typed(flags, "json") && !typed(flags, "output"):
		a.output = ""
	case typed(flags, "json") && a.json && a.output != asJSON:
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "output", Message: "--json contradicts --output " + string(a.output), Hint: "omit one of them"}
	}
	return nil
}

// format returns the selected format.
func (a *app) format() format {
	switch {
	case a.output != "":
		return a.output
	case a.json:
		return asJSON
	}
	return asTable
}

// print writes value in the selected format. text writes it as a table.
func (a *app) print(value any, text func(w *screen)) error {
	var out bytes.Buffer
	f := a.format()
	if f == asTable {
		text(a.screen(&out))
	} else if err := encode(&out, f, value); err != nil {
		return fmt.Errorf("encode the output as %s: %w", f, err)
	}
	if a.printed && f == asYAML {
		out = *bytes.NewBufferString("---\n" + out.String())
	}
	a.printed = true
	results, _ := a.streams()
	if _, err := results.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// screen returns a screen that writes to w what will appear on standard output.
func (a *app) screen(w io.Writer) *screen {
	return &screen{Writer: w, now: time.Now(), color: a.onTerminal() && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// onTerminal reports whether standard output is a terminal.
func (a *app) onTerminal() bool {
	if a.terminal != nil {
		return a.terminal()
	}
	return isTerminal(a.stdout)
}
