package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posthaste-mq/posthaste"
)

// Main runs the program with the given arguments (without its own name) and
// returns its exit code.
func Main(args []string) int {
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, log: slog.New(slog.DiscardHandler)}
	ctx, signals := watchSignals(context.Background(), os.Stderr)
	defer signals.stop()
	a.signal = signals
	root := newRoot(a)
	root.SetArgs(args)
	command, err := root.ExecuteContextC(ctx)
	return a.finish(command, err)
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "posthaste",
		Short: "Messages that leave with the transaction that caused them",
		Long: `Posthaste delivers messages that leave with the database transaction that
caused them: queues, e-mail and dead letters with nothing but PostgreSQL, or
on a Redis.

Start with ` + "`posthaste up`" + `, which needs nothing else. Every flag can also be given
as an environment variable: --log-level is POSTHASTE_LOG_LEVEL.

Exit codes: 0 done, 1 failed, 2 used wrongly, 3 the database or broker cannot
be reached.`,
		Args:              groupArgs,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: a.begin,
		SilenceErrors:     true,
		SilenceUsage:      true,
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	flags := root.PersistentFlags()
	flags.SortFlags = false
	flags.BoolVar(&a.json, "json", false, "print JSON for programs, one value on one line, errors too")
	flags.StringVar(&a.logLevel, "log-level", "info", "least level to log: debug, info, warn or error")
	flags.StringVar(&a.logFormat, "log-format", "text", "how to log: text or json")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
			f := wrong.GetFlag()
			return posthaste.Invalidf(f.Name, "--%s %s", f.Name, wrongValue(f, wrong.GetValue(), wrong.Unwrap()))
		}
		return err
	})
	root.SetHelpCommand(newHelp(root))
	root.AddCommand(
		newUp(a), newServe(a), newWorker(a), newRelay(a), newMigrate(a), newRebase(a),
		newSend(a), newReceive(a), newQueue(a), newMessage(a), newDead(a), newAction(a), newErase(a), newSchedule(a), newToken(a), newBench(a), newDoctor(a),
		newImport(a), newVersion(a),
	)
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		completion.Args, completion.RunE = groupArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	return root
}
