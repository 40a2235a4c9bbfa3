//go:build unix

package cli_test

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/posthastetest"
	posthasteredis "github.com/posthaste-mq/posthaste/redis"
	"github.com/posthaste-mq/posthaste/server"
)

// TestRelayIntoEngines relays from a database into another one, into Redis and over HTTP.
func TestRelayIntoEngines(t *testing.T) {
	t.Parallel()
	from, to, redis := testpg.New(t), testpg.New(t), startRedis(t)
	source := storeOf(postgres.Open(t.Context(), from))(t)
	intoPostgres, intoRedis := storeOf(postgres.Open(t.Context(), to))(t), storeOf(posthasteredis.Open(t.Context(), redis.URL()))(t)
	api, err := server.New(server.Config{Engine: intoRedis, Client: posthaste.NewClient(intoRedis), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	behind := httptest.NewServer(api)
	t.Cleanup(behind.Close)

	const count = 50
	for _, queue := range []string{"orders", "mails", "invoices"} {
		fill(t, source, queue, count)
	}
	for engine, queue := range map[posthaste.Store][]string{intoPostgres: {"orders"}, intoRedis: {"mails", "all"}} {
		for _, q := range queue {
			if err := engine.CreateQueue(t.Context(), q, posthaste.QueueOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := workDir(t)
	relays := fmt.Sprintf("relays:\n  - {queue: orders, to_engine: \"%s\", origin: shop}\n  - {queue: mails, to_engine: \"%s\", origin: shop}\n  - {queue: invoices, to_engine: \"%s\", origin: shop, to_queue: all}\n", to, redis.URL(), behind.URL)
	if err := os.WriteFile(filepath.Join(dir, "relays.yaml"), []byte(relays), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, dir, nil, "relay", "--database-url", from, "--config", "relays.yaml")
	for _, at := range []struct {
		engine      posthaste.Store
		from, queue string
		destination string
	}{
		{intoPostgres, "orders", "orders", "PostgreSQL at " + address(t, to)},
		{intoRedis, "mails", "mails", "Redis at " + address(t, redis.URL())},
		{intoRedis, "invoices", "all", "Posthaste server at " + address(t, behind.URL)},
	} {
		eventually(t, "the messages of "+at.from+" arrive", func() error {
			if n := len(posthastetest.Sent(t, at.engine, at.queue)); n != count {
				return fmt.Errorf("there are %d", n)
			}
			return nil
		})
		m := posthastetest.Sent(t, at.engine, at.queue)[0]
		if m.Kind != "placed" || m.Key == "" || !strings.HasPrefix(m.Headers[posthaste.HeaderMessageID], "shop-") {
			t.Errorf("%s: %+v", at.from, m)
		}
		sinks := destinations(t, source, at.from)
		if len(sinks) != 1 || !strings.HasPrefix(sinks[0], at.destination) || strings.Contains(sinks[0], "posthaste:") {
			t.Errorf("the destination is %q, want %q", sinks, at.destination)
		}
	}
}

// storeOf returns a function that fails a test if a store could not be opened, and closes it with
// the test.
func storeOf(engine posthaste.Store, err error) func(t *testing.T) posthaste.Store {
	return func(t *testing.T) posthaste.Store {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(engine.Close)
		return engine
	}
}

// fill creates a queue and sends messages to it.
func fill(t *testing.T, engine posthaste.Store, queue string, count int) {
	t.Helper()
	if err := engine.CreateQueue(t.Context(), queue, posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range count {
		if _, err := engine.Send(t.Context(), posthaste.Message{Queue: queue, Kind: "placed", Key: fmt.Sprint("k", i), Payload: i}); err != nil {
			t.Fatal(err)
		}
	}
}

// destinations returns the destinations of a queue's sinks.
func destinations(t *testing.T, engine posthaste.Store, queue string) (all []string) {
	t.Helper()
	found, err := engine.Workers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range found {
		for _, s := range w.Sinks {
			if s.Queue == queue {
				all = append(all, s.Destination)
			}
		}
	}
	return all
}
