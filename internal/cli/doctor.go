package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func newDoctor(a *app) *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check the store for problems",
		Long: `Check the store for present and imminent problems, and print how to fix them: a
database that is a copy; settings that lose messages; missing privileges;
long-running transactions, prepared transactions and replication slots; a ring
(the table segments that hold messages) that is nearly full; workers with late
heartbeats, and lost workers; subscriptions that lag; schedules that do not tick;
invalid indexes; clock differences; an unsuitable pooler; a schema of another
version.

The exit code is 1 if there is a fault, which needs action now, and 0 if there are
only warnings.`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error { return runDoctor(ctx, a, e) })
		},
	}
	db.flag(cmd)
	return cmd
}

func runDoctor(ctx context.Context, a *app, e posthaste.Store) error {
	found, err := e.Doctor(ctx)
	if err != nil {
		return err
	}
	faults := 0
	if err := a.print(wire.NewFindings(found), func(w *screen) {
		if len(found) == 0 {
			fmt.Fprintln(w, "no problems found")
		}
		for _, f := range found {
			level := "warning"
			if f.Fault {
				level = "fault"
			}
			fmt.Fprintf(w, "%s (%s): %s\n", level, f.Check, f.Message)
			if f.Hint != "" {
				fmt.Fprintf(w, "  %s\n", f.Hint)
			}
		}
	}); err != nil {
		return err
	}
	for _, f := range found {
		if f.Fault {
			faults++
		}
	}
	if faults > 0 {
		return &posthaste.Error{Code: posthaste.CodeRefused, Message: fmt.Sprintf("doctor found %d faults", faults), Hint: "see the findings above"}
	}
	return nil
}
