package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posthaste-mq/posthaste"
)

// notYet is a command that the product has and this version does not: it is
// not shown, and whoever names it is told.
func notYet(name string) *cobra.Command {
	return &cobra.Command{
		Use: name, Hidden: true, DisableFlagParsing: true,
		// Before the environment is looked at: nothing else matters.
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return unsupported(cmd.CommandPath()) },
		RunE:              func(cmd *cobra.Command, _ []string) error { return unsupported(cmd.CommandPath()) },
	}
}

func unsupported(what string) error {
	return &posthaste.Error{Code: posthaste.Unsupported, Message: what + " is not supported yet"}
}

const laterMark = "posthaste_later"

// later adds hidden flags that are refused by name when they are given.
func later(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		flags.String(name, "", "not supported yet")
		_ = flags.MarkHidden(name)
		_ = flags.SetAnnotation(name, laterMark, nil)
	}
}

// refuseLater refuses what later added, and --redis-url.
func refuseLater(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		if _, ok := f.Annotations[laterMark]; ok || f.Name == "redis-url" {
			err = &posthaste.Error{Code: posthaste.Unsupported, Field: f.Name, Message: "--" + f.Name + " is not supported yet", Hint: "leave it out"}
		}
	})
	return err
}
