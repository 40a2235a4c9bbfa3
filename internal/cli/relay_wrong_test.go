//go:build unix

package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/postgres"
)

// Errors of NATS and Redis in the configuration of relays and sources are reported at the
// start, with the line and a fix. TestOR2_Relay covers RabbitMQ, and TestMovedFromDebezium
// covers Kafka.
func TestWrongAtTheBroker(t *testing.T) {
	t.Parallel()
	database, dir := testpg.New(t), workDir(t)
	engine, err := postgres.Open(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Close)
	if err := engine.CreateQueue(t.Context(), "orders", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	redis0, err := devbroker.StartRedis(t.Context(), t.TempDir(), "--requirepass", "right")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis0.Stop)
	nats0, err := devbroker.StartNATS(t.Context(), t.TempDir(), "authorization: {user: me, password: right}")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nats0.Stop)
	client := redis.NewClient(&redis.Options{Addr: redis0.Address(), Password: "right"})
	defer client.Close()
	if err := client.Set(t.Context(), "text", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	redisURL, natsURL := "redis://:right@"+redis0.Address(), "nats://me:right@"+nats0.Address()
	for text, want := range map[string]string{
		"relays:\n  - queue: orders\n    broker: " + redisURL + "\n    stream: text\n":                                       ".yaml:4: redis at",
		"relays:\n  - queue: orders\n    broker: " + strings.Replace(redisURL, "right", "hunter2", 1) + "\n":                 ".yaml:3: redis at",
		"relays:\n  - queue: orders\n    broker: " + natsURL + "\n    subject: missing\n":                                    ".yaml:4: nats at",
		"relays:\n  - queue: orders\n    stream: nowhere\n    broker: " + natsURL + "\n":                                     ".yaml:3: nats at",
		"relays:\n  - queue: orders\n    broker: " + strings.Replace(natsURL, "right", "hunter2", 1) + "\n":                  ".yaml:3: nats at",
		"sources:\n  - queue: orders\n    broker: " + redisURL + "\n    stream: nowhere\n":                                   ".yaml:4: redis at",
		"sources:\n  - queue: orders\n    stream: x\n    broker: " + strings.Replace(redisURL, "right", "hunter2", 1) + "\n": ".yaml:4: redis at",
		"sources:\n  - queue: orders\n    broker: " + natsURL + "\n    stream: nowhere\n":                                    ".yaml:4: nats at",
		"sources:\n  - queue: orders\n    stream: x\n    broker: " + strings.Replace(natsURL, "right", "hunter2", 1) + "\n":  ".yaml:4: nats at",
		"relays:\n  - queue: orders\n    broker: " + redisURL + "\n    headers:\n      tenant: \"{{.Header.tenant}}\"\n":     ".yaml:5: ",
	} {
		if err := os.WriteFile(filepath.Join(dir, "elsewhere.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, stderr, code := run(t, dir, "relay", "--database-url", database, "--config", "elsewhere.yaml")
		if code != 2 || !strings.Contains(stderr, want) || strings.Contains(stderr, "hunter2") || strings.Count(stderr, "\n") < 2 {
			t.Errorf("%s: exit code %d: %s", text, code, stderr)
		}
	}
}
