//go:build !unix

package cli

import (
	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
)

// newUp refuses: the embedded PostgreSQL needs a Unix.
func newUp(*app) *cobra.Command {
	return &cobra.Command{
		Use: "up", Short: "Start everything on this machine (not supported on this system yet)", DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return &posthaste.Error{Code: posthaste.Unsupported, Message: "posthaste up is not supported on this system yet",
				Hint: "run PostgreSQL yourself, then posthaste migrate up and posthaste serve --worker"}
		},
	}
}
