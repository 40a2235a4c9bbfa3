package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
)

// newHelp replaces the help command of cobra, which prints the help of the program and
// succeeds if the command is unknown.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND...]", Short: "Show the help of a command",
		RunE: func(_ *cobra.Command, args []string) error {
			of, rest, err := root.Find(args)
			if err == nil {
				err = groupArgs(of, rest)
			}
			if err != nil {
				return err
			}
			of.InitDefaultHelpFlag()
			return of.Help()
		},
	}
}

// newGroup returns a command that only has subcommands.
func newGroup(use, short string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{
		Use: use, Short: short, Args: groupArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return &posthaste.Error{Code: posthaste.CodeInvalid, Message: "missing subcommand; expected one of " + strings.Join(names(cmd), ", "),
				Hint: "for help: " + cmd.CommandPath() + " --help"}
		},
	}
	for _, c := range commands {
		c.Aliases = aliases[c.Name()]
	}
	group.AddCommand(commands...)
	return group
}

// newNamed returns a command that runs do with the store and its one argument, which what
// describes.
func newNamed(a *app, use, short, what string, do func(ctx context.Context, a *app, e posthaste.Store, name string) error) *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use: use, Short: short,
		Args: exactly(1, what),
		RunE: func(cmd *cobra.Command, args []string) error {
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error { return do(ctx, a, e, args[0]) })
		},
	}
	db.flag(cmd)
	return cmd
}

// newShown is newNamed for a command that only shows something, which can be watched.
func newShown(a *app, use, short, what string, do func(ctx context.Context, a *app, e posthaste.Store, name string) error) *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use: use, Short: short,
		Args: exactly(1, what),
		RunE: func(cmd *cobra.Command, args []string) error {
			return db.show(cmd, a, func(ctx context.Context, e posthaste.Store) error { return do(ctx, a, e, args[0]) })
		},
	}
	db.shownFlag(cmd)
	return cmd
}

// aliases are the names of other programs for subcommands.
var aliases = map[string][]string{"ls": {"list"}, "show": {"get"}, "drop": {"rm"}}

// groupArgs rejects an unknown subcommand of a group.
func groupArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	e := &posthaste.Error{Code: posthaste.CodeInvalid, Message: "unknown command \"" + cmd.CommandPath() + " " + args[0] + "\"",
		Hint: "expected one of " + strings.Join(names(cmd), ", ")}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		e.Hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return e
}

func names(cmd *cobra.Command) []string {
	var all []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			all = append(all, c.Name())
		}
	}
	return all
}

// exactly accepts n arguments, which what names in the error. It rejects an empty
// argument, such as the value of an unset variable.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) != n:
			return wrongArgs(cmd, what)
		case slices.Contains(args, ""):
			return wrongArgs(cmd, what+"; got an empty argument")
		}
		return nil
	}
}

// between accepts least to most arguments. A negative most means any number.
func between(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && (most < 0 || len(args) <= most) {
			return nil
		}
		return wrongArgs(cmd, what)
	}
}

func wrongArgs(cmd *cobra.Command, what string) error {
	return &posthaste.Error{Code: posthaste.CodeInvalid, Message: cmd.CommandPath() + " takes " + what, Hint: "usage: " + cmd.UseLine()}
}
