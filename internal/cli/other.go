//go:build !unix

package cli

import (
	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
)

func newUp(*app) *cobra.Command { return notHere("up", "Start everything on this machine") }
func newProve(*app) *cobra.Command {
	return notHere("prove", "Kill workers and PostgreSQL on this machine, and account for every message")
}
func newBench(*app) *cobra.Command {
	return notHere("bench", "Measure the performance on this machine")
}

// notHere returns a command that fails, because the embedded PostgreSQL requires Unix.
func notHere(name, short string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short + " (not supported on this system yet)", DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return &posthaste.Error{Code: posthaste.CodeUnsupported, Message: "posthaste " + name + " is not supported on this system yet",
				Hint: "run PostgreSQL yourself, then `posthaste migrate up` and `posthaste serve --worker`"}
		},
	}
}
