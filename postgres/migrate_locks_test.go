package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devpg"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/postgres"
)

// A migration and its script fail before they change anything if the server's lock table is too
// small.
func TestMigrateNeedsRoomForItsLocks(t *testing.T) {
	t.Parallel()
	server := testpg.Unfilled(t, func(c *devpg.Config) {
		c.Settings["max_locks_per_transaction"] = "10"
		c.Settings["max_connections"] = "20"
	})
	conn, err := postgres.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	err = postgres.Migrate(t.Context(), conn, postgres.MigrateOptions{})
	if posthaste.CodeOf(err) != posthaste.CodeRefused || !strings.Contains(err.Error(), "max_locks_per_transaction to ") {
		t.Errorf("migrating ends with %v, want it refused, with what to set", err)
	}
	parts, err := postgres.MigrationScript(postgres.ScriptOptions{})
	if err != nil {
		t.Fatal(err)
	}
	script := "begin;\n"
	for _, p := range parts {
		script += p.SQL
	}
	_, err = conn.PgConn().Exec(t.Context(), script).ReadAll()
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || !strings.Contains(pg.Message, "the server's lock table has ") || !strings.Contains(pg.Hint, "max_locks_per_transaction to ") {
		t.Errorf("the script ends with %v, want it refused, with what to set", err)
	}
}
