package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
)

func newMigrate(a *app) *cobra.Command {
	return newGroup("migrate", "Install, upgrade or remove the schema posthaste",
		newMigrateUp(a), newMigrateDown(a), newMigrateStatus(a), newMigrateSQL(a))
}

const noRolesHelp = "create and drop no roles, for servers on which this user cannot create roles"

func newMigrateUp(a *app) *cobra.Command {
	var db database
	var options postgres.MigrateOptions
	cmd := &cobra.Command{
		Use: "up", Short: "Install or upgrade the schema",
		Long: `Install the schema posthaste in the database, or upgrade it, and create the queue
of e-mails. The command is idempotent, and several processes can run it at once.
It needs the privilege to create schemas in the database, and to create roles unless
--no-roles is given. It does not need a superuser.`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := db.check(); err != nil {
				return err
			}
			options.Log = a.quietly()
			if err := install(cmd.Context(), db.urls.DatabaseURL, options); err != nil {
				return err
			}
			return listMigrations(cmd.Context(), a, db)
		},
	}
	db.sqlFlag(cmd, "other engines have no schema to migrate")
	cmd.Flags().BoolVar(&options.NoRoles, "no-roles", false, noRolesHelp)
	return cmd
}

func newMigrateDown(a *app) *cobra.Command {
	var db database
	var options postgres.MigrateOptions
	var yes confirmed
	cmd := &cobra.Command{
		Use: "down", Short: "Remove the schema and all messages",
		Long: `Remove the schema posthaste and everything in it, including all messages. The three
roles are removed too, unless they are in use or --no-roles is given. Objects that
Posthaste did not create are never removed: if the schema contains such objects, or
others depend on it, the command lists them and removes nothing.`,
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
				if removed {
					if err := a.confirm(cmd.Context(), yes, db.place(), func() (string, error) {
						return fmt.Sprintf("remove the schema posthaste with all queues and messages from database %s", conn.Config().Database), nil
					}); err != nil {
						return err
					}
				}
				return postgres.MigrateDown(cmd.Context(), conn, options)
			})
			if err != nil {
				return err
			}
			return a.print(map[string]bool{"removed": removed}, func(w *screen) {
				if removed {
					fmt.Fprintln(w, "removed the schema posthaste")
				} else {
					fmt.Fprintln(w, "this database has no schema posthaste; nothing was removed")
				}
			})
		},
	}
	db.sqlFlag(cmd, "other engines have no schema to migrate")
	cmd.Flags().BoolVar(&options.NoRoles, "no-roles", false, noRolesHelp)
	yes.flag(cmd)
	return cmd
}

func newMigrateStatus(a *app) *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use: "status", Short: "Show the migrations of the database",
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return listMigrations(cmd.Context(), a, db) },
	}
	db.sqlFlag(cmd, "other engines have no schema to migrate")
	return cmd
}

// migration is one line of migrate status.
type migration struct {
	Version   int       `json:"version"`
	Name      string    `json:"name"`
	State     string    `json:"state"`
	Breaking  bool      `json:"breaking"`
	AppliedAt time.Time `json:"applied_at,omitzero"`
}

func listMigrations(ctx context.Context, a *app, db database) error {
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
			shown = append(shown, migration{m.Version, m.Name, state, m.Breaking, m.AppliedAt})
		}
		return err
	})
	if err != nil {
		return err
	}
	return a.print(shown, func(w *screen) {
		table(w, "MIGRATION NAME STATE APPLIED", func(row func(...any)) {
			for _, m := range shown {
				row(fmt.Sprintf("%04d", m.Version), m.Name, m.State, m.AppliedAt)
			}
		})
	})
}

// install installs or upgrades the schema and creates the queue of e-mails, for `migrate
// up` and `up`.
func install(ctx context.Context, url string, options postgres.MigrateOptions) error {
	conn, err := postgres.Connect(ctx, url, postgres.WithPollingOnly())
	if err != nil {
		return err
	}
	err = postgres.Migrate(ctx, conn, options)
	_ = conn.Close(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	engine, err := postgres.Open(ctx, url, postgres.WithLogger(options.Log), postgres.WithPoolSize(1), postgres.WithPollingOnly())
	if err != nil {
		return err
	}
	defer engine.Close()
	return makeEmails(ctx, engine, posthaste.QueueOptions{})
}
