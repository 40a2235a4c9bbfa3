package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste/postgres"
)

func newRebase(a *app) *cobra.Command {
	var db database
	var sameIDs bool
	cmd := &cobra.Command{
		Use: "rebase", Short: "Make a restored copy of a database usable",
		Long: `Make the ledger of a copy usable: of a database that was restored from a dump,
cloned, or moved by logical replication. Until then nothing is handed out in it,
for its transaction ids are others than those its messages were sent under, and so
that a copy of production does not send mails by itself. A physical copy, such as a
restored snapshot, hands out nothing either while it is reached from elsewhere than
its original was.

What was not settled when the copy was made is handed out again, what was handed
out then with attempt + 1. So make sure first that the original hands out nothing
any more. It happens in one transaction, and whoever sends waits meanwhile; cut
off, it has done nothing. Where the ledger belongs to the database already nothing
is done.`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.rebase(cmd.Context(), db, sameIDs) },
	}
	db.sqlFlag(cmd, "on a Redis nothing has to be told of a copy")
	cmd.Flags().BoolVar(&sameIDs, "same-ids", false, "this is what pg_upgrade made, or the database itself, reached by another address: its transaction ids are the same, and nothing is handed out again")
	return cmd
}

func (a *app) rebase(ctx context.Context, db database, sameIDs bool) error {
	if err := db.check(); err != nil {
		return err
	}
	did, err := postgres.Rebase(ctx, db.url, sameIDs, func(progress string) { a.log.Info(progress) })
	if err != nil {
		return err
	}
	return a.print(did, func(w io.Writer) {
		switch {
		case !did.Rebased:
			fmt.Fprintln(w, "the ledger belongs to this database: there is nothing to do")
		case sameIDs:
			fmt.Fprintln(w, "the ledger belongs to this database from now on")
		default:
			fmt.Fprintf(w, "the ledger belongs to this database from now on: %d messages wait, and %d that were handed out are handed out again\n", did.Waiting, did.Again)
		}
	})
}
