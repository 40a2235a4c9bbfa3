package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste/postgres"
)

func newMigrate(a *app) *cobra.Command {
	return newGroup("migrate", "Install, upgrade or remove the schema posthaste",
		newMigrateUp(a), newMigrateDown(a), newMigrateStatus(a))
}

const noRolesHelp = "leave the server's roles alone, for managed servers where this user may not create any"

func newMigrateUp(a *app) *cobra.Command {
	var db database
	var options postgres.MigrateOptions
	cmd := &cobra.Command{
		Use: "up", Short: "Install the schema or bring it up to date",
		Long: `Install the schema posthaste in the database or bring it up to date, with the
queue of e-mails. Doing it twice, or from several processes at once, is fine. It
needs the right to create a schema in the database but no superuser, and the
right to create roles unless --no-roles is given.`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := db.check(); err != nil {
				return err
			}
			options.Log = a.quietly()
			if err := install(cmd.Context(), db.url, options); err != nil {
				return err
			}
			return a.migrations(cmd.Context(), db)
		},
	}
	db.sqlFlag(cmd, "a Redis has no schema, and nothing to migrate")
	cmd.Flags().BoolVar(&options.NoRoles, "no-roles", false, noRolesHelp)
	return cmd
}

func newMigrateDown(a *app) *cobra.Command {
	var db database
	var options postgres.MigrateOptions
	cmd := &cobra.Command{
		Use: "down", Short: "Remove the schema with everything in it, all messages included",
		Long: `Remove the schema posthaste with everything in it, all messages included. The
three roles go too, unless somebody uses them or --no-roles is given. What
Posthaste did not make is never removed: where the schema holds other objects, or
others depend on it, nothing is removed, and they are named.`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.Log = a.quietly()
			removed := false
			err := db.connected(cmd.Context(), func(conn *pgx.Conn) error {
				all, err := postgres.MigrateStatus(cmd.Context(), conn)
				if err != nil {
					return err
				}
				removed = slices.ContainsFunc(all, func(m postgres.MigrationStatus) bool { return !m.Pending })
				return postgres.MigrateDown(cmd.Context(), conn, options)
			})
			if err != nil {
				return err
			}
			return a.print(map[string]bool{"removed": removed}, func(w io.Writer) {
				if removed {
					fmt.Fprintln(w, "the schema posthaste is removed")
				} else {
					fmt.Fprintln(w, "there is no schema posthaste in this database: nothing was removed")
				}
			})
		},
	}
	db.sqlFlag(cmd, "a Redis has no schema, and nothing to migrate")
	cmd.Flags().BoolVar(&options.NoRoles, "no-roles", false, noRolesHelp)
	return cmd
}

func newMigrateStatus(a *app) *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use: "status", Short: "Show which migrations the database has",
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.migrations(cmd.Context(), db) },
	}
	db.sqlFlag(cmd, "a Redis has no schema, and nothing to migrate")
	return cmd
}

// connected runs f on one connection.
func (d *database) connected(ctx context.Context, f func(*pgx.Conn) error) error {
	if err := d.check(); err != nil {
		return err
	}
	conn, err := postgres.Connect(ctx, d.url, postgres.WithPollingOnly())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return f(conn)
}

// quietly is the log of commands whose output says it all, unless somebody
// wants to know everything.
func (a *app) quietly() *slog.Logger {
	if a.log.Enabled(context.Background(), slog.LevelDebug) {
		return a.log
	}
	return slog.New(slog.DiscardHandler)
}

// migration is one line of migrate status.
type migration struct {
	Version   int    `json:"version"`
	Name      string `json:"name"`
	State     string `json:"state"`
	Breaking  bool   `json:"breaking"`
	AppliedAt string `json:"applied_at,omitempty"`
}

func (a *app) migrations(ctx context.Context, db database) error {
	shown := []migration{}
	err := db.connected(ctx, func(conn *pgx.Conn) error {
		all, err := postgres.MigrateStatus(ctx, conn)
		for _, m := range all {
			state := "applied"
			switch {
			case m.Pending:
				state = "pending"
			case m.Unknown:
				state = "unknown" // newer than this program
			}
			shown = append(shown, migration{m.Version, m.Name, state, m.Breaking, clock(m.AppliedAt)})
		}
		return err
	})
	if err != nil {
		return err
	}
	return a.print(shown, func(w io.Writer) {
		table(w, "MIGRATION NAME STATE APPLIED", func(row func(...any)) {
			for _, m := range shown {
				row(fmt.Sprintf("%04d", m.Version), m.Name, m.State, m.AppliedAt)
			}
		})
	})
}
