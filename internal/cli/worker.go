package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
)

func newWorker(a *app) *cobra.Command {
	var db database
	var work working
	cmd := &cobra.Command{
		Use: "worker --queue NAME", Short: "Deliver messages with a built-in sink, until stopped",
		Long: `Deliver the messages of queues that have a built-in sink: for now the queue
emails, by SMTP. The worker waits for a database that is away, and comes back by
itself when it was lost.

SIGTERM or Ctrl-C stops it in order: it takes nothing more, hands back what has
not started and gives the rest --grace to finish. A second signal ends it at
once with exit code 130 or 143; what it held runs elsewhere.`,
		Example: "  posthaste worker --queue emails --smtp-url smtp://user:password@mail.example.com:587",
		Args:    exactly(0, "no arguments; queues are named with --queue"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.work(cmd.Context(), db, work)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringSliceVarP(&work.queues, "queue", "q", nil, "the queue to work on; may be repeated")
	db.flag(cmd)
	db.pollingFlag(cmd)
	work.flags(cmd.Flags())
	return cmd
}

func (a *app) work(ctx context.Context, db database, work working) error {
	if len(work.queues) == 0 {
		return &posthaste.Error{Code: posthaste.Invalid, Field: "queue", Message: "no queue is given", Hint: "name one with --queue, for example --queue emails"}
	}
	if err := work.check(); err != nil {
		return err
	}
	made, closeSinks, err := work.open()
	if err != nil {
		return err
	}
	defer closeSinks()
	a.signal.announce.Store(true)
	engine, err := db.wait(ctx, a.log)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer engine.Close()
	run := work.worker(engine, made, a.log, nil)
	go a.tellStarted(ctx, run.Started(), "working", "queues", work.queues)
	return run.Run(ctx)
}

// tellStarted logs once that something runs.
func (a *app) tellStarted(ctx context.Context, started <-chan struct{}, message string, args ...any) {
	select {
	case <-started:
		a.log.Info(message, args...)
	case <-ctx.Done():
	}
}
