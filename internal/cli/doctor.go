package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func newDoctor(a *app) *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use: "doctor", Short: "Look for what is wrong, or soon will be",
		Long: `Look for what is wrong, or soon will be, and say what helps: a database that
is a copy; settings that lose messages; missing privileges; transactions,
prepared transactions and replication slots that stay; a ring that runs full and
what keeps its oldest slot; workers that beat late or were lost; subscriptions
that fall behind; schedules that do not tick; indexes that cannot be used; clocks
that differ; a pooler in the way; a schema of another version.

The exit code is 1 where something needs a person now (a fault), and 0 where
there are only warnings.`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error { return a.doctor(ctx, e) })
		},
	}
	db.flag(cmd)
	return cmd
}

func (a *app) doctor(ctx context.Context, e posthaste.Store) error {
	found, err := e.Doctor(ctx)
	if err != nil {
		return err
	}
	faults := 0
	if err := a.print(wire.NewFindings(found), func(w io.Writer) {
		if len(found) == 0 {
			fmt.Fprintln(w, "all is well")
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
		return &posthaste.Error{Code: posthaste.CodeRefused, Message: fmt.Sprintf("the doctor found %d faults", faults), Hint: "see above"}
	}
	return nil
}
