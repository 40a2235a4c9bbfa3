package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
)

func newWorker(a *app) *cobra.Command {
	var db database
	var work sinkFlags
	var metricsListen string
	cmd := &cobra.Command{
		Use: "worker --queue NAME", Short: "Deliver messages with a built-in sink",
		Long: `Deliver the messages of queues with a built-in sink: currently the queue emails, by
SMTP. The worker waits while the database is unavailable, and reconnects after an
outage.

SIGTERM or Ctrl-C stops it gracefully: it claims no more messages, releases those
that have not started, and waits up to --grace for the others. A second signal stops
it at once with exit code 130 or 143; its messages are redelivered.`,
		Example: "  posthaste worker --queue emails --smtp-url smtp://user:password@mail.example.com:587",
		Args:    exactly(0, "no arguments; use --queue to name queues"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runSinks(cmd.Context(), a, db, work, metricsListen)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringSliceVarP(&work.queues, "queue", "q", nil, "the queue to deliver; may be repeated")
	db.flag(cmd)
	needsStore(cmd, "a worker delivers the messages of its own database")
	db.pollingFlag(cmd)
	work.flags(cmd.Flags())
	cmd.AddCommand(newWorkerLs(a))
	cmd.Flags().StringVar(&metricsListen, "metrics-listen", "", "address of /metrics and /healthz, without authentication, host:port (default: not served)")
	return cmd
}

func runSinks(ctx context.Context, a *app, db database, work sinkFlags, metricsListen string) error {
	if len(work.queues) == 0 {
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "queue", Message: "no queue is set", Hint: "set --queue, for example --queue emails"}
	}
	if err := work.check(); err != nil {
		return err
	}
	made, closeSinks, err := work.open()
	if err != nil {
		return err
	}
	defer closeSinks()
	return runWorker(ctx, a, db, metricsListen, func(ctx context.Context, w workerParts) (runner, error) {
		return work.worker(w, made), db.prepare(ctx, w.engine)
	}, "working", "queues", work.queues)
}
