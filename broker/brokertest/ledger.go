//go:build unix

package brokertest

import (
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/redis"
)

// Postgres returns an empty ledger in a database of the test's own.
func Postgres(t *testing.T) posthaste.Store {
	t.Helper()
	e, err := postgres.Open(t.Context(), testpg.New(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// Orders returns the ledger of [Postgres] with the queue "orders".
func Orders(t *testing.T) posthaste.Engine {
	t.Helper()
	e := Postgres(t)
	if err := e.CreateQueue(t.Context(), "orders", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	return e
}

// Redis returns an empty ledger on a Redis server of the test's own.
func Redis(t *testing.T) posthaste.Store {
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
