package nats

import (
	"context"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/posthaste-mq/posthaste"
)

// startServer starts a server in this process and returns its URL. Its data is gone with the test.
func startServer(t testing.TB) string { return startServerOf(t, 0) }

// startServerOf starts a server that stores at most some bytes, 0: as many as the disk has room for.
func startServerOf(t testing.TB, bytes int64) string {
	t.Helper()
	s := startServerWith(t, &server.Options{JetStreamMaxStore: bytes})
	return s.ClientURL()
}

// startServerWith starts a server in this process. It fills in the options that all servers have.
func startServerWith(t testing.TB, o *server.Options) *server.Server {
	t.Helper()
	o.Host, o.Port, o.JetStream, o.StoreDir, o.NoLog, o.NoSigs = "127.0.0.1", -1, true, storeDir(t), true, true
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server does not start")
	}
	return s
}

// storeDir makes a folder for a server, in memory if the machine has a place for that: the server syncs
// often, which takes seconds while others keep the disk busy.
func storeDir(t testing.TB) string {
	t.Helper()
	const memory = "/dev/shm"
	if _, err := os.Stat(memory); err != nil {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "posthaste-nats-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// openEngine opens an engine that ends with the test.
func openEngine(t testing.TB, url string, options ...Option) *Engine {
	t.Helper()
	e, err := Open(context.Background(), url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func TestQueueIsCreatedOnce(t *testing.T) {
	t.Parallel()
	url := startServer(t)
	a, b := openEngine(t, url), openEngine(t, url)
	ctx := context.Background()
	errs := make(chan error, 2)
	for _, e := range []*Engine{a, b} {
		go func() { errs <- e.CreateQueue(ctx, "jobs.of.many", posthaste.QueueOptions{MaxAttempts: 7}) }()
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if err := a.CreateQueue(ctx, "jobs.of.many", posthaste.QueueOptions{MaxAttempts: 8}); posthaste.CodeOf(err) != posthaste.CodeConflict {
		t.Errorf("another value: %v", err)
	}
	if _, err := b.queue(ctx, "jobs.of.many"); err != nil {
		t.Error(err)
	}
}

// Names may have dots anywhere.
func TestQueuesWithDots(t *testing.T) {
	t.Parallel()
	url := startServer(t)
	a, b := openEngine(t, url), openEngine(t, url)
	ctx := context.Background()
	for _, name := range []string{"a..b", ".a", "a.", "...", "-", "a.b", "a_b"} {
		if err := a.CreateQueue(ctx, name, posthaste.QueueOptions{}); err != nil {
			t.Errorf("queue %q: %v", name, err)
		}
		if sent, err := b.Send(ctx, posthaste.Message{Queue: name, Payload: 1}); err != nil || b.queues.numbered(queueNumber(sent[0].ID)).Name != name {
			t.Errorf("a message for queue %q: %v", name, err)
		}
	}
	if all := a.queues.listed(); len(all) != 7 {
		t.Errorf("the queues are %d", len(all))
	}
}

// prefixes numbers the stores of one server.
var prefixes atomic.Int64

func prefixOf(t testing.TB) string {
	t.Helper()
	return "t" + strconv.FormatInt(prefixes.Add(1), 10)
}
