// Package cli is the command line `posthaste`, one command a file. It ties
// engine, runtime, server and sinks together, and nothing imports it but the
// program itself.
//
// Every flag can also be given as an environment variable: --log-level is
// POSTHASTE_LOG_LEVEL; the flag wins. --database-url and --smtp-url are also
// read from DATABASE_URL and SMTP_URL, and --redis-url from REDIS_URL.
//
// Exit codes: 0 done, 1 failed, 2 used wrongly (also what is not supported
// yet), 3 the database or broker cannot be reached, 130 and 143 when a signal cut
// it short (SIGINT, SIGTERM).
package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
)

// app is what all commands share.
type app struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	signal *signals
	log    *slog.Logger
	// begun is set when arguments and flags were understood: what fails before
	// that was used wrongly.
	begun bool

	json      bool
	logLevel  string
	logFormat string
}

// begin runs before every command, when its arguments and flags were parsed.
func (a *app) begin(cmd *cobra.Command, _ []string) error {
	if err := cmp.Or(bindEnvironment(cmd.Flags()), refuseEmpty(cmd.Flags())); err != nil {
		return err
	}
	log, err := newLogger(a.stderr, a.logLevel, a.logFormat)
	if err != nil {
		return err
	}
	a.log, a.begun = log, true
	goredis.SetLogger(redisLog{log}) // it writes to the standard error otherwise
	return nil
}

// redisLog is what the client of Redis says beside its errors.
type redisLog struct{ *slog.Logger }

// Printf implements the interface of the client's loggers.
func (l redisLog) Printf(ctx context.Context, format string, args ...any) {
	l.DebugContext(ctx, fmt.Sprintf(format, args...))
}

func newLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	options := &slog.HandlerOptions{}
	switch strings.ToLower(level) {
	case "debug":
		options.Level = slog.LevelDebug
	case "info":
		options.Level = slog.LevelInfo
	case "warn", "warning":
		options.Level = slog.LevelWarn
	case "error":
		options.Level = slog.LevelError
	default:
		return nil, posthaste.Invalidf("log-level", "--log-level must be debug, info, warn or error, and is %q", level)
	}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, posthaste.Invalidf("log-format", "--log-format must be text or json, and is %q", format)
}

// newHelp is in place of cobra's, which shows the program's help for a word that is none of
// its commands, and succeeds.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND...]", Short: "Show how a command is used",
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

// newGroup makes a command that only holds others.
func newGroup(use, short string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{
		Use: use, Short: short, Args: groupArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return &posthaste.Error{Code: posthaste.CodeInvalid, Message: "say what to do: " + strings.Join(names(cmd), ", "),
				Hint: cmd.CommandPath() + " --help tells more"}
		},
	}
	group.AddCommand(commands...)
	return group
}

// groupArgs refuses a word that is none of a group's commands.
func groupArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	e := &posthaste.Error{Code: posthaste.CodeInvalid, Message: cmd.CommandPath() + " has no command \"" + args[0] + "\"",
		Hint: "it has " + strings.Join(names(cmd), ", ")}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		e.Hint = "do you mean " + strings.Join(near, " or ") + "?"
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

// exactly takes n arguments, named in what. None may be empty, as that of a variable that
// nobody has set.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) != n:
			return wrongArgs(cmd, what)
		case slices.Contains(args, ""):
			return wrongArgs(cmd, what+"; one of those given is empty")
		}
		return nil
	}
}

// between takes least to most arguments; most below zero means any number.
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
