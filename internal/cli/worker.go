package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
)

func newWorker(a *app) *cobra.Command {
	var db database
	var work working
	var metricsListen string
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
			return a.work(cmd.Context(), db, work, metricsListen)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringSliceVarP(&work.queues, "queue", "q", nil, "the queue to work on; may be repeated")
	db.flag(cmd)
	db.pollingFlag(cmd)
	work.flags(cmd.Flags())
	cmd.Flags().StringVar(&metricsListen, "metrics-listen", "", "where /metrics and /healthz of this worker are served to everybody who reaches it, host:port; nowhere by default")
	return cmd
}

func (a *app) work(ctx context.Context, db database, work working, metricsListen string) error {
	if len(work.queues) == 0 {
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "queue", Message: "no queue is given", Hint: "name one with --queue, for example --queue emails"}
	}
	if err := work.check(); err != nil {
		return err
	}
	made, closeSinks, err := work.open()
	if err != nil {
		return err
	}
	defer closeSinks()
	return a.runWorker(ctx, db, metricsListen, func(ctx context.Context, w workerParts) (runner, error) {
		return work.worker(w, made), db.prepare(ctx, w.engine)
	}, "working", "queues", work.queues)
}
