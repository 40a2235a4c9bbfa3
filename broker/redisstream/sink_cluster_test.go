package redisstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/configtest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/redis"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/sink/sinktest"
)

// clusterSettings let a replica replace a master, but not because a busy machine was slow:
// see [setFailoverTimeout].
var clusterSettings = []string{"--cluster-node-timeout", "15000", "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"}

// setFailoverTimeout sets whether a master is replaced soon after it fails. Servers that are
// down keep their setting.
func setFailoverTimeout(c *devbroker.RedisCluster, is bool) {
	timeout := "15000"
	if is {
		timeout = "2000"
	}
	for _, n := range c.Nodes {
		_ = n.Client.ConfigSet(context.Background(), "cluster-node-timeout", timeout).Err()
	}
}

// newCluster starts a cluster of three masters with a client.
func newCluster(t *testing.T, replicas int, settings ...string) (*devbroker.RedisCluster, *goredis.ClusterClient) {
	t.Helper()
	c := devbroker.Own(t, func(ctx context.Context, dir string, further ...string) (*devbroker.RedisCluster, error) {
		return devbroker.StartRedisCluster(ctx, dir, 3, replicas, further...)
	}, settings...)
	var addresses []string
	for _, n := range c.Nodes {
		addresses = append(addresses, n.Address())
	}
	client := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: addresses, Protocol: 2})
	t.Cleanup(func() { client.Close() })
	return c, client
}

// entries returns the message ids in a stream, in order.
func entries(t *testing.T, client *goredis.ClusterClient, stream string) (ids []string) {
	t.Helper()
	all, err := client.XRange(context.Background(), stream, "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		ids = append(ids, fmt.Sprint(m.Values[FieldMessageID]))
	}
	return ids
}

// deliveryToStream returns a delivery for one of a number of streams, which are in many
// slots.
func deliveryToStream(n, streams int) posthaste.RawDelivery {
	d := sinktest.Delivery(n)
	d.Kind = fmt.Sprint("stream-", n%streams)
	return d
}

// Messages are added where the cluster has their streams, whichever server the URL names.
// Check reports wrong configurations.
func TestSinkCluster(t *testing.T) {
	t.Parallel()
	c, client := newCluster(t, 3, clusterSettings...)
	for _, n := range c.Nodes { // masters and replicas
		s := sinktest.Open(t, NewSink, SinkConfig{URL: URL(n.URL()), Stream: "{{.Kind}}"}, nil)
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("Check: %v", err)
		}
		var batch []posthaste.RawDelivery
		for n := range 3000 {
			batch = append(batch, deliveryToStream(n, 30))
		}
		for _, r := range sinktest.Deliver(t, s, batch...) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		s.Close()
	}
	for stream := range 30 {
		ids := entries(t, client, fmt.Sprint("stream-", stream))
		for i, id := range ids {
			if want := fmt.Sprint(stream + 30*(i%100)); id != want {
				t.Fatalf("entry %d of stream %d is message %s, want %s", i, stream, id, want)
			}
		}
		if len(ids) != 600 {
			t.Errorf("stream %d has %d entries", stream, len(ids))
		}
	}

	testClusterConfigs(t, c, client)
}

// testClusterConfigs tests Check of a sink for a cluster.
func testClusterConfigs(t *testing.T, c *devbroker.RedisCluster, client *goredis.ClusterClient) {
	if err := client.Set(t.Context(), "text", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes {
		if err := n.Client.Do(t.Context(), "acl", "setuser", "little", "on", ">s", "+xadd", "+type", "~*").Err(); err != nil {
			t.Fatal(err)
		}
	}
	with := func(change func(*SinkConfig)) *Sink {
		t.Helper()
		return sinktest.Open(t, NewSink, SinkConfig{URL: URL(c.URL()), Stream: "orders"}, change)
	}
	as := func(user string) string { return strings.Replace(c.URL(), "redis://", "redis://"+user+"@", 1) }
	configtest.Checks(t, "wrong", with,
		configtest.Valid("the first is down", func(c *SinkConfig) { c.URL = URL(strings.Replace(string(c.URL), "://", "://127.0.0.1:1,", 1)) }),
		configtest.Valid("its replicas", func(c *SinkConfig) { c.Replicas = 1 }),
		configtest.Unavailable("more replicas", func(c *SinkConfig) { c.Replicas = 2 }),
		configtest.Invalid("stream", "stream", func(c *SinkConfig) { c.Existing = true }),
		configtest.Invalid("not a stream", "stream", func(c *SinkConfig) { c.Stream = "text" }),
		configtest.Invalid("database", "url", func(c *SinkConfig) { c.URL += "/1" }),
		configtest.Invalid("password", "url", func(c *SinkConfig) { c.URL = URL(as("me:wrong")) }),
		configtest.Invalid("a user who may not ask", "url", func(c *SinkConfig) { c.URL = URL(as("little:s")) }),
		configtest.Invalid("servers without a cluster", "url", func(c *SinkConfig) { c.URL = URL("redis://" + broker.Address() + "," + broker.Address()) }),
		configtest.Unavailable("away", func(c *SinkConfig) { c.URL = "redis://127.0.0.1:1,127.0.0.1:2" }))
	// With one server that this user may not ask, the server's redirection is the error.
	var moved error
	for _, n := range c.Nodes[:3] {
		s := with(func(c *SinkConfig) { c.URL = URL(strings.Replace(n.URL(), "redis://", "redis://little:s@", 1)) })
		if r := sinktest.Deliver(t, s, sinktest.Delivery(1)); r[0].Err != nil {
			moved = r[0].Err
			sinktest.WantRetried(t, r[0], "MOVED")
			var e *posthaste.Error
			if err := s.Check(t.Context()); !errors.As(err, &e) || e.Code != posthaste.CodeInvalid || e.Field != "url" || strings.Contains(err.Error(), ":s@") {
				t.Errorf("Check as a user who may not ask: %v", err)
			}
		}
	}
	if moved == nil {
		t.Error("each server accepts the message")
	}
}

// traffic delivers batches to many streams until the test ends or end is called, and
// delivers failed messages again.
type traffic struct {
	mu        sync.Mutex
	delivered map[int]bool
	attempts  map[int]int
	errors    []error
	stop      chan struct{}
	once      sync.Once
	all       sync.WaitGroup
}

const trafficStreams = 30 // streams

func startTraffic(t *testing.T, s *Sink) *traffic {
	y := &traffic{delivered: map[int]bool{}, attempts: map[int]int{}, stop: make(chan struct{})}
	t.Cleanup(y.end)
	for sender := range 3 {
		y.all.Go(func() {
			for n := 0; ; n += 50 {
				select {
				case <-y.stop:
					return
				default:
				}
				var open []posthaste.RawDelivery
				for i := range 50 {
					open = append(open, deliveryToStream(3*(n+i)+sender, trafficStreams))
				}
				for len(open) > 0 {
					select {
					case <-y.stop:
						return
					default:
					}
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					results := s.Deliver(ctx, open)
					cancel()
					y.mu.Lock()
					var again []posthaste.RawDelivery
					for i, r := range results {
						id := int(open[i].MessageID)
						if y.attempts[id]++; r.Err == nil {
							y.delivered[id] = true
						} else {
							again, y.errors = append(again, open[i]), append(y.errors, r.Err)
						}
					}
					y.mu.Unlock()
					open = again
				}
			}
		})
	}
	return y
}

func (y *traffic) count() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return len(y.delivered)
}

// failed reports whether an attempt has failed with an error that contains a text.
func (y *traffic) failed(words string) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	return slices.ContainsFunc(y.errors, func(err error) bool { return strings.Contains(err.Error(), words) })
}

func (y *traffic) end() {
	y.once.Do(func() { close(y.stop) })
	y.all.Wait()
}

// compare checks that all delivered messages are in the streams, and that duplicates had as
// many attempts.
func (y *traffic) compare(t *testing.T, client *goredis.ClusterClient) (twice int) {
	t.Helper()
	times := map[string]int{}
	for stream := range trafficStreams {
		for _, id := range entries(t, client, fmt.Sprint("stream-", stream)) {
			times[id]++
		}
	}
	lost := 0
	for id := range y.delivered {
		if times[fmt.Sprint(id)] == 0 {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d delivered messages are lost", lost, len(y.delivered))
	}
	for id, n := range times {
		number, err := strconv.Atoi(id)
		if err != nil {
			t.Fatal(err)
		}
		if n > y.attempts[number] {
			t.Errorf("message %s arrived %d times in %d attempts", id, n, y.attempts[number])
		}
		twice += n - 1
	}
	return twice
}

// wait waits for a condition.
func wait(t *testing.T, what string, met func() bool) {
	t.Helper()
	testrun.Until(t, 2*time.Minute, what, met)
}

// A master is killed while messages flow, and its replica replaces it. The sink continues by
// itself, and the delivered messages are there, because the replica had them. While the new
// master has no replica, nothing is delivered, until the killed server is back.
func TestSinkMasterFailsOver(t *testing.T) {
	t.Parallel()
	c, client := newCluster(t, 3, clusterSettings...)
	s := sinktest.Open(t, NewSink, SinkConfig{URL: URL(c.URL()), Stream: "{{.Kind}}", Replicas: 1, ReplicaTimeout: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}, nil)
	y := startTraffic(t, s)
	wait(t, "messages flow", func() bool { return y.count() > 1000 })
	dead := c.Owner(t.Context(), "stream-0")
	c.Failover(t.Context(), false) // not before the sink has noticed that the master is down
	setFailoverTimeout(c, true)
	dead.Kill()
	wait(t, "the sink reports that a server is away", s.Away)
	c.Failover(t.Context(), true)
	wait(t, "a replica replaces it", func() bool {
		now := c.Owner(t.Context(), "stream-0")
		return now != nil && now != dead
	})
	setFailoverTimeout(c, false)
	content := sinktest.Open(t, NewSink, SinkConfig{URL: URL(dead.URL() + "," + strings.TrimPrefix(c.URL(), "redis://")), Stream: "{{.Kind}}-besides"}, nil)
	var besides []posthaste.RawDelivery
	for n := range trafficStreams {
		besides = append(besides, deliveryToStream(n, trafficStreams))
	}
	for _, r := range sinktest.Deliver(t, content, besides...) {
		if r.Err != nil {
			t.Errorf("without required replicas: %v", r.Err)
		}
	}
	wait(t, "the sink reports that its masters are back", func() bool { return !s.Away() })
	wait(t, "a message is on the new master alone", func() bool { return y.failed("0 of 1 replicas") })
	if err := dead.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait(t, "the killed server is a replica", func() bool { return dead.Follows(t.Context()) })
	after := y.count()
	wait(t, "messages flow again", func() bool { return y.count() > after+1000 })
	y.end()
	twice := y.compare(t, client)
	t.Logf("%d delivered, %d attempts failed, %d duplicates", y.count(), len(y.errors), twice)
}

// A slot moves while messages flow, as resharding does. No attempt fails, and no message is
// duplicated or lost.
func TestSinkSlotMoves(t *testing.T) {
	t.Parallel()
	c, client := newCluster(t, 0, clusterSettings...)
	s := sinktest.Open(t, NewSink, SinkConfig{URL: URL(c.Nodes[0].URL()), Stream: "{{.Kind}}"}, nil)
	y := startTraffic(t, s)
	wait(t, "messages flow", func() bool { return y.count() > 1000 })
	for range 3 {
		from := c.Owner(t.Context(), "stream-0")
		to := c.Nodes[0]
		if to == from {
			to = c.Nodes[1]
		}
		err := c.Move(t.Context(), "stream-0", from, to, func() {
			// The new server accepts only redirected messages so far.
			before := y.count()
			wait(t, "messages flow during the move", func() bool { return y.count() > before+1000 })
		})
		if err != nil {
			t.Fatal(err)
		}
		before := y.count()
		wait(t, "messages flow after the move", func() bool { return y.count() > before+1000 })
	}
	y.end()
	if twice := y.compare(t, client); twice > 0 || len(y.errors) > 0 {
		t.Errorf("%d duplicates, %d attempts failed: %v", twice, len(y.errors), errors.Join(y.errors[:min(3, len(y.errors))]...))
	}
}

// While a cluster does not serve, messages wait until the timeout, whose error contains the
// server's words.
func TestClusterDown(t *testing.T) {
	t.Parallel()
	c, client := newCluster(t, 0, clusterSettings...)
	s := sinktest.Open(t, NewSink, SinkConfig{URL: URL(c.Nodes[0].URL()), Stream: "{{.Kind}}"}, nil)
	owner := c.Owner(t.Context(), "stream-1")
	slot := redis.Slot("stream-1")
	wait(t, "the slot has no server", func() bool {
		for _, n := range c.Nodes { // because a later server may tell an earlier one again
			if err := n.Client.ClusterDelSlots(t.Context(), slot).Err(); err != nil && !goredis.HasErrorPrefix(err, fmt.Sprintf("Slot %d is already unassigned", slot)) {
				t.Fatal(err)
			}
		}
		return c.Owner(t.Context(), "stream-1") == nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	r := s.Deliver(ctx, []posthaste.RawDelivery{deliveryToStream(1, trafficStreams)})
	sinktest.WantRetried(t, r[0], "CLUSTERDOWN")
	if !errors.Is(r[0].Err, context.DeadlineExceeded) {
		t.Error(r[0].Err)
	}
	done := make(chan error, 1)
	go func() { done <- sinktest.Deliver(t, s, deliveryToStream(1, trafficStreams))[0].Err }()
	if err := owner.Client.ClusterAddSlots(t.Context(), slot).Err(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	var n int64
	wait(t, "the cluster serves", func() bool {
		var err error
		n, err = client.XLen(t.Context(), "stream-1").Result()
		return err == nil
	})
	if n != 1 {
		t.Errorf("the stream has %d entries", n)
	}
}
