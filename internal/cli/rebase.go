package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
)

func newRebase(a *app) *cobra.Command {
	var db database
	var sameIDs bool
	cmd := &cobra.Command{
		Use: "rebase", Short: "Enable delivery in a restored copy of a database",
		Long: `Enable delivery in a copy of a database: one that was restored from a dump, cloned,
or moved by logical replication. A copy delivers nothing until it is rebased. Its
transaction ids differ from those of the original, and a copy of production must
not send mails by itself. A physical copy, such as a restored snapshot, also
delivers nothing while it is used from another environment than the original.

Messages that were not settled when the copy was made are redelivered; those that
were in flight get attempt + 1. Make sure first that the original delivers nothing
any more. The command runs in one transaction, which blocks senders; if it is
interrupted, nothing changes. If the database is not a copy, nothing is done.`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return rebaseDatabase(cmd.Context(), a, db, sameIDs) },
	}
	db.sqlFlag(cmd, "a copy of another engine needs no rebase")
	cmd.Flags().BoolVar(&sameIDs, "same-ids", false, "the transaction ids are unchanged, as after pg_upgrade or if the same database has a new address; nothing is redelivered")
	return cmd
}

func rebaseDatabase(ctx context.Context, a *app, db database, sameIDs bool) error {
	if err := db.check(); err != nil {
		return err
	}
	did, err := postgres.Rebase(posthaste.WithActor(ctx, caller()), db.urls.DatabaseURL, sameIDs, func(progress string) { a.log.Info(progress) })
	if err != nil {
		return err
	}
	return a.print(did, func(w *screen) {
		switch {
		case !did.Rebased:
			fmt.Fprintln(w, "the database is not a copy; nothing to do")
		case sameIDs:
			fmt.Fprintln(w, "delivery is enabled")
		default:
			fmt.Fprintf(w, "delivery is enabled: %d messages are waiting, and %d that were in flight are redelivered\n", did.Waiting, did.Again)
		}
	})
}
