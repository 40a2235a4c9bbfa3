package postgres_test

import (
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devpg"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/postgres"
)

// A migration fails before it changes anything if the server's lock table is too small.
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
}
