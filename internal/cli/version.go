package cli

import (
	"cmp"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version of the program", Args: exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			shown := struct {
				Version  string `json:"version"`
				Commit   string `json:"commit"`
				Go       string `json:"go"`
				Platform string `json:"platform"`
			}{version(), commit(), runtime.Version(), platform()}
			return a.print(shown, func(w *screen) { fmt.Fprint(w, versionLine()) })
		},
	}
}

func platform() string { return runtime.GOOS + "/" + runtime.GOARCH }

// versionLine returns what `posthaste version` and `posthaste --version` print.
func versionLine() string {
	return fmt.Sprintf("posthaste %s (commit %s, %s, %s)\n", version(), cmp.Or(commit(), "unknown"), runtime.Version(), platform())
}
