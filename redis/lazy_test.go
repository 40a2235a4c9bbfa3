package redis

import (
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
)

// Every method of an engine that was opened lazily rejects an unsuitable server, whether or
// not a caller has asked if the engine is ready. The engine works once the server is right.
func TestLazily(t *testing.T) {
	t.Parallel()
	s, err := devbroker.StartRedis(t.Context(), t.TempDir(), "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	s.Shutdown()
	e, err := Open(t.Context(), s.URL(), WithLazyConnect())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	message := posthaste.Message{Queue: jobs, Payload: 1}
	if _, err := e.Send(t.Context(), message); posthaste.CodeOf(err) != posthaste.CodeUnavailable {
		t.Errorf("while it is away: %v", err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for what, do := range map[string]func() error{
		"ready":  func() error { return e.Ready(t.Context()) },
		"create": func() error { return e.CreateQueue(t.Context(), jobs, posthaste.QueueOptions{}) },
		"send":   func() error { _, err := e.Send(t.Context(), message); return err },
	} {
		if err := do(); posthaste.CodeOf(err) != posthaste.CodeUnsupported {
			t.Errorf("%s where keys may be evicted: %v", what, err)
		}
	}
	right := goredis.NewClient(&goredis.Options{Addr: s.Address()})
	defer right.Close()
	if err := right.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err(); err != nil {
		t.Fatal(err)
	}
	if err := e.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	create(t, e, posthaste.QueueOptions{})
	send(t, e, 1)
	create(t, e, posthaste.QueueOptions{}) // as it is wanted
	if err := e.CreateQueue(t.Context(), jobs, posthaste.QueueOptions{MaxAttempts: 3}); posthaste.CodeOf(err) != posthaste.CodeConflict {
		t.Errorf("made again with other options: %v", err)
	}
}
