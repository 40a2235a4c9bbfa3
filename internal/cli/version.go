package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Version is the program's version. Releases set it when they are linked; a
// build without it calls itself by what Go knows of the module.
var Version = ""

func version() string {
	if Version != "" {
		return Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the program's version", Args: exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			shown := struct {
				Version  string `json:"version"`
				Go       string `json:"go"`
				Platform string `json:"platform"`
			}{version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return a.print(shown, func(w io.Writer) {
				fmt.Fprintf(w, "posthaste %s (%s, %s)\n", shown.Version, shown.Go, shown.Platform)
			})
		},
	}
}
