//go:build unix

package sourcetest

import (
	"testing"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/redis"
)

// Redis is an empty ledger on a Redis of the test's own.
func Redis(t *testing.T) posthaste.Engine {
	t.Helper()
	server, err := devbroker.StartRedis(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	e, err := redis.Open(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}
