package redis_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/enginetest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/redis"
)

var _ posthaste.Engine = (*redis.Engine)(nil)

// server is the Redis of the tests that do not hurt it.
var server *devbroker.Redis

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "posthaste-redis-")
	if err == nil {
		server, err = devbroker.StartRedis(context.Background(), dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	server.Stop()
	os.RemoveAll(dir)
	os.Exit(code)
}

// open opens an engine whose keys no other test has.
func open(t *testing.T, url string, options ...redis.Option) *redis.Engine {
	t.Helper()
	prefix := strings.ToLower(strings.NewReplacer("/", ".", "#", "-").Replace(t.Name()))
	e, err := redis.Open(t.Context(), url, append([]redis.Option{redis.WithPrefix(prefix[max(0, len(prefix)-60):])}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func TestEngine(t *testing.T) {
	enginetest.RunWith(t, enginetest.Capabilities{NoSubscriptions: true, NoLimits: true, NoOrder: true, NoSearch: true, NoWithdrawing: true,
		NoIdempotency: true, NoAtMostOnce: true, NoTokens: true, NoSchedules: true}, func(t *testing.T) posthaste.Engine { return open(t, server.URL()) })
}
