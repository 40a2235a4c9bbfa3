package cli

import (
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
				Go       string `json:"go"`
				Platform string `json:"platform"`
			}{version(), runtime.Version(), platform()}
			return a.print(shown, func(w *screen) { fmt.Fprint(w, versionLine()) })
		},
	}
}

// versionLine returns what `version` and --version print.
func versionLine() string {
	return fmt.Sprintf("posthaste %s (%s, %s)\n", version(), runtime.Version(), platform())
}

func platform() string { return runtime.GOOS + "/" + runtime.GOARCH }
