package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func newWorkerLs(a *app) *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use: "ls", Aliases: aliases["ls"], Short: "List registered workers of all programs",
		Long: `List registered workers of all programs. A worker is lost if its heartbeat was missing
for longer than its lease; its messages are redelivered. RUNNING is how many handlers run,
of how many that may, and LONGEST the message whose handler has run longest.`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return db.show(cmd, a, func(ctx context.Context, e posthaste.Store) error { return listWorkers(ctx, a, e) })
		},
	}
	db.shownFlag(cmd)
	return cmd
}

func listWorkers(ctx context.Context, a *app, e posthaste.Store) error {
	workers, err := e.Workers(ctx)
	if err != nil {
		return err
	}
	shown := make([]wire.Worker, len(workers))
	for i, w := range workers {
		shown[i] = wire.NewWorker(w)
	}
	return a.print(listed{data: shown}, func(w *screen) {
		if len(shown) == 0 {
			fmt.Fprintln(w, "no workers are registered")
			return
		}
		table(w, "ID NAME VERSION STARTED HEARTBEAT STATE RUNNING LONGEST", func(row func(...any)) {
			for _, x := range shown {
				state := styled{"alive", green}
				if !x.LostAt.IsZero() {
					state = styled{"lost", red}
				}
				running, longest := work(x)
				row(x.ID, x.Name, x.Version, x.StartedAt, x.HeartbeatAt, state, running, longest)
			}
		})
	})
}

// work describes what a worker does.
func work(w wire.Worker) (running, longest string) {
	if len(w.Subscriptions) == 0 {
		return "", ""
	}
	runs := 0
	for _, s := range w.Subscriptions {
		runs += s.Running
	}
	if len(w.Running) > 0 {
		first := w.Running[0]
		longest = fmt.Sprintf("%s of %s for %s", first.ID, first.Queue, w.HeartbeatAt.Sub(first.StartedAt).Round(time.Second))
	}
	return fmt.Sprintf("%d of %d", runs, w.Concurrency), longest
}
