//go:build unix

package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste/internal/catcher"
)

// anyRedisPorts selects Redis and free ports.
var anyRedisPorts = []string{"--engine", "redis", "--listen", "127.0.0.1:0", "--smtp-listen", "127.0.0.1:0", "--redis-port", "0"}

// redisOf returns a client of the Redis that up has started.
func redisOf(t *testing.T, u upped) *goredis.Client {
	t.Helper()
	o, err := goredis.ParseURL(u.Redis)
	if err != nil {
		t.Fatal(err)
	}
	c := goredis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// TestUpOnRedis sends the printed mail, kills Redis and up in turn, and finds the mail again.
func TestUpOnRedis(t *testing.T) {
	t.Parallel()
	survivesKills(t, anyRedisPorts, func(u upped) {
		if u.Database != "" || !strings.HasPrefix(u.Redis, "redis://127.0.0.1:") {
			t.Errorf("up prints %+v", u)
		}
		client := redisOf(t, u)
		checkDurable(t, client)
		eventually(t, "it is written", written(client))
	}, func(u upped) []string {
		return []string{"--engine", "redis", "--redis-port", u.Redis[len("redis://127.0.0.1:") : len(u.Redis)-len("/0")]}
	}, func(u upped) {
		if err := redisOf(t, u).Ping(t.Context()).Err(); err == nil {
			t.Error("Redis runs after up has stopped")
		}
	})
}

// TestUpOnRedisIsRefused checks errors of invalid flags and without redis-server.
func TestUpOnRedisIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"up", "--engine", "mysql"}, 2, "postgres, redis or nats"},
		{[]string{"up", "--engine", "redis", "--postgres-port", "1"}, 2, "--postgres-port does not apply to --engine redis"},
		{[]string{"up", "--redis-port", "1"}, 2, "--redis-port does not apply to --engine postgres"},
		{[]string{"up", "--engine", "redis", "--redis-port", "70000"}, 2, "--redis-port must be"},
	} {
		_, stderr, code := run(t, dir, c.args...)
		if code != c.code || !strings.Contains(stderr, c.says) {
			t.Errorf("%v: exit code %d, %s", c.args, code, stderr)
		}
	}
	p := start(t, dir, []string{"PATH=" + t.TempDir()}, append([]string{"up"}, anyRedisPorts...)...)
	if code := p.wait(); code != 3 || !strings.Contains(p.said(), "redis-server is not installed") {
		t.Errorf("without a redis-server: exit code %d, %s", code, p.said())
	}
}

// TestRE3WholeServer counts the connections of a server with a worker and many handlers, while
// receivers wait and mails are delivered.
func TestRE3WholeServer(t *testing.T) {
	t.Parallel()
	store := startRedis(t)
	mails, err := catcher.Start(catcher.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mails.Close() })
	p, address := startServe(t, []string{"REDIS_URL=" + store.URL(), "SMTP_URL=smtp://" + mails.Addr() + "?tls=none"}, "--worker", "--concurrency", "200")
	base := "http://" + address
	eventually(t, "it is ready", func() error { _, err := get(base+"/readyz", nil); return err })
	eventually(t, "the queue of mails is there", func() error { _, err := get(base+"/v1/queues/emails", nil); return err })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range 20 {
		waitForMessage(ctx, t, base, fmt.Sprintf("queue-%d", i))
	}
	for range 50 {
		if _, err := do("POST", base+"/v1/emails", `{"from": "shop@example.com", "to": ["ada@example.com"], "subject": "s", "text": "t"}`, nil); err != nil {
			t.Fatal(err)
		}
	}
	limited, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	if err := mails.Wait(limited, func(all []catcher.Mail) bool { return len(all) == 50 }); err != nil {
		t.Fatal(err)
	}
	client := goredis.NewClient(&goredis.Options{Addr: store.Address(), ClientName: "counting"})
	defer client.Close()
	list, err := client.ClientList(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(list, "name=posthaste "); n == 0 || n > 8 {
		t.Errorf("%d connections:\n%s", n, list)
	}
	text := textOf(t, base+"/metrics")
	if !strings.Contains(text, `posthaste_queue_sent_total{queue="emails",subscription="default"} 50`) ||
		!strings.Contains(text, "posthaste_store_up 1") || strings.Contains(text, "posthaste_slots_free") {
		t.Errorf("/metrics:\n%s", text)
	}
	// Without its store, the server keeps running and is not ready.
	store.Shutdown()
	eventually(t, "it is not ready", answers(base+"/readyz", 503))
	if _, err := get(base+"/healthz", nil); err != nil {
		t.Error(err)
	}
	if err := store.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is ready again", func() error { _, err := get(base+"/readyz", nil); return err })
	cancel()
	if code := p.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("SIGTERM: exit code %d\n%s", code, p.said())
	}
}

func textOf(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// checkSent checks that the mail at a URL is sent, with one answer of the mail server.
func checkSent(url string) error {
	var m struct {
		mail
		Answers map[string]json.RawMessage
	}
	_, err := get(url, &m)
	if err == nil && (m.Status != "sent" || len(m.Answers) != 1) {
		err = fmt.Errorf("status %q, %d answers", m.Status, len(m.Answers))
	}
	return err
}

// written returns a condition that Redis has written its append-only file.
func written(client *goredis.Client) func() error {
	return func() error {
		about, err := client.Info(context.Background(), "persistence").Result()
		if err == nil && !strings.Contains(about, "aof_buffer_length:0\r") {
			err = fmt.Errorf("there is more to write")
		}
		return err
	}
}

// checkDurable checks the persistence settings of Redis.
func checkDurable(t *testing.T, client *goredis.Client) {
	t.Helper()
	for _, setting := range []struct{ name, want string }{{"appendonly", "yes"}, {"appendfsync", "everysec"}, {"maxmemory-policy", "noeviction"}} {
		if have, err := client.ConfigGet(t.Context(), setting.name).Result(); err != nil || have[setting.name] != setting.want {
			t.Errorf("%s: %v, %v", setting.name, have, err)
		}
	}
}

// waitForMessage creates a queue and starts a receive request that waits for a message.
func waitForMessage(ctx context.Context, t *testing.T, base, queue string) {
	t.Helper()
	if _, err := do("PUT", base+"/v1/queues/"+queue, `{}`, nil); err != nil {
		t.Fatal(err)
	}
	go func() {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/queues/"+queue+"/receive", strings.NewReader(`{"wait":"20s"}`))
		if err == nil {
			r.Header.Set("Content-Type", "application/json")
			if answer, err := http.DefaultClient.Do(r); err == nil {
				answer.Body.Close()
			}
		}
	}()
}
