// Package cli is the command line `posthaste`, with one command group per file. It
// connects engines, worker, server and sinks. Only the program itself imports it.
//
// Each flag has an environment variable: --log-level is POSTHASTE_LOG_LEVEL. The flag
// wins. --database-url, --redis-url, --nats-url and --smtp-url are also read from
// DATABASE_URL, REDIS_URL, NATS_URL and SMTP_URL. Without a URL, the current context of the user selects the store,
// which can also be a server of the HTTP API.
//
// Exit codes: 0 success, 1 failure, 2 usage error or unsupported operation, 3 the
// database, server or broker cannot be reached, 130 and 143 interrupted by SIGINT or SIGTERM.
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

// Main runs the program with args, which exclude the program name, and returns the exit
// code.
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
		Short: "Message queue in PostgreSQL, Redis or NATS JetStream, with transactional sends",
		Long: `Posthaste is a message queue inside PostgreSQL, or on Redis or NATS JetStream. On
PostgreSQL, applications send messages in their own transactions. Messages are redelivered
until they succeed or are dead-lettered.

Start with ` + "`posthaste up`" + `, which needs nothing else. Each flag has an environment
variable: --log-level is POSTHASTE_LOG_LEVEL.

Exit codes: 0 success, 1 failure, 2 usage error, 3 the database, server or broker
cannot be reached, 4 queue apply --diff found a difference.`,
		Args:              groupArgs,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: a.begin,
		Version:           version(),
		SilenceErrors:     true,
		SilenceUsage:      true,
	}
	root.SetVersionTemplate(versionLine())
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	flags := root.PersistentFlags()
	flags.SortFlags = false
	a.outputFlags(root, flags)
	flags.StringVar(&a.logLevel, "log-level", "info", "minimum log level: debug, info, warn or error")
	flags.StringVar(&a.logFormat, "log-format", "text", "log format: text or json")
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
		newSend(a), newReceive(a), newQueue(a), newMessage(a), newEmail(a), newDead(a), newFailure(a), newAction(a), newErase(a), newSchedule(a), newToken(a), newContext(a), newBench(a), newProve(a), newDoctor(a), newSelfCheck(a),
		newImport(a), newHealthcheck(a), newVersion(a),
	)
	completeNames(root)
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		completion.Args, completion.RunE = groupArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	return root
}
