package redisstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/configtest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/redis"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// willing are settings with which a master is replaced, and not because a busy machine
// stood still: see [impatient].
var willing = []string{"--cluster-node-timeout", "15000", "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"}

// impatient says whether a master is replaced soon after its death. Servers that are away
// are not told.
func impatient(c *devbroker.RedisCluster, is bool) {
	timeout := "15000"
	if is {
		timeout = "2000"
	}
	for _, n := range c.Nodes {
		_ = n.Client.ConfigSet(context.Background(), "cluster-node-timeout", timeout).Err()
	}
}

// newCluster starts a cluster, with a client that finds its way in it.
func newCluster(t *testing.T, replicas int) (*devbroker.RedisCluster, *goredis.ClusterClient) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := devbroker.StartRedisCluster(ctx, t.TempDir(), 3, replicas, willing...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	var addresses []string
	for _, n := range c.Nodes {
		addresses = append(addresses, n.Address())
	}
	client := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: addresses, Protocol: 2})
	t.Cleanup(func() { client.Close() })
	return c, client
}

// entries are the message ids in a stream, in its order.
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

// spread is a delivery for one of as many streams, which are in many slots.
func spread(n, streams int) posthaste.RawDelivery {
	d := delivery(n)
	d.Kind = fmt.Sprint("stream-", n%streams)
	return d
}

// Streams are where the cluster has them, whichever server is named; what is wrong is
// told.
func TestSinkCluster(t *testing.T) {
	t.Parallel()
	c, client := newCluster(t, 3)
	for _, n := range c.Nodes { // masters and replicas
		s, err := NewSink(SinkConfig{URL: URL(n.URL()), Stream: "{{.Kind}}"})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("Check: %v", err)
		}
		var batch []posthaste.RawDelivery
		for n := range 3000 {
			batch = append(batch, spread(n, 30))
		}
		for _, r := range deliver(t, s, batch...) {
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

	if err := client.Set(t.Context(), "text", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes {
		if err := n.Client.Do(t.Context(), "acl", "setuser", "little", "on", ">s", "+xadd", "+type", "~*").Err(); err != nil {
			t.Fatal(err)
		}
	}
	with := func(change func(*SinkConfig)) *Sink {
		config := SinkConfig{URL: URL(c.URL()), Stream: "orders"}
		change(&config)
		s, err := NewSink(config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	as := func(user string) string { return strings.Replace(c.URL(), "redis://", "redis://"+user+"@", 1) }
	for _, test := range []struct {
		name, field string
		code        posthaste.Code
		change      func(*SinkConfig)
	}{
		{"as it is", "", "", func(*SinkConfig) {}},
		{"the first is away", "", "", func(c *SinkConfig) { c.URL = URL(strings.Replace(string(c.URL), "://", "://127.0.0.1:1,", 1)) }},
		{"its replicas", "", "", func(c *SinkConfig) { c.Replicas = 1 }},
		{"more replicas", "", posthaste.CodeUnavailable, func(c *SinkConfig) { c.Replicas = 2 }},
		{"stream", "stream", posthaste.CodeInvalid, func(c *SinkConfig) { c.Existing = true }},
		{"no stream", "stream", posthaste.CodeInvalid, func(c *SinkConfig) { c.Stream = "text" }},
		{"database", "url", posthaste.CodeInvalid, func(c *SinkConfig) { c.URL += "/1" }},
		{"password", "url", posthaste.CodeInvalid, func(c *SinkConfig) { c.URL = URL(as("me:wrong")) }},
		{"one who may not ask", "url", posthaste.CodeInvalid, func(c *SinkConfig) { c.URL = URL(as("little:s")) }},
		{"servers that are no cluster", "url", posthaste.CodeInvalid, func(c *SinkConfig) { c.URL = URL("redis://" + broker.Address() + "," + broker.Address()) }},
		{"away", "", posthaste.CodeUnavailable, func(c *SinkConfig) { c.URL = "redis://127.0.0.1:1,127.0.0.1:2" }},
	} {
		configtest.Check(t, test.name, with(test.change), test.code, test.field, "wrong")
	}
	// One server alone, to whom this user is known, says where else, and no more.
	var moved error
	for _, n := range c.Nodes[:3] {
		s := with(func(c *SinkConfig) { c.URL = URL(strings.Replace(n.URL(), "redis://", "redis://little:s@", 1)) })
		if r := deliver(t, s, delivery(1)); r[0].Err != nil {
			moved = r[0].Err
			wantRetried(t, r[0], "MOVED")
			configtest.Check(t, "one who may not ask, of one server", s, posthaste.CodeInvalid, "url", ":s@")
		}
	}
	if moved == nil {
		t.Error("each server takes the message")
	}
}

// tally sends batches to many streams until the test ends or it is told to, delivering
// again what was not delivered.
type tally struct {
	mu        sync.Mutex
	delivered map[int]bool
	attempts  map[int]int
	errors    []error
	stop      chan struct{}
	once      sync.Once
	all       sync.WaitGroup
}

const tallied = 30 // streams

func startTally(t *testing.T, s *Sink) *tally {
	y := &tally{delivered: map[int]bool{}, attempts: map[int]int{}, stop: make(chan struct{})}
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
					open = append(open, spread(3*(n+i)+sender, tallied))
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

func (y *tally) count() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return len(y.delivered)
}

// failed says whether an attempt has failed with these words.
func (y *tally) failed(words string) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	return slices.ContainsFunc(y.errors, func(err error) bool { return strings.Contains(err.Error(), words) })
}

func (y *tally) end() {
	y.once.Do(func() { close(y.stop) })
	y.all.Wait()
}

// compare looks that all that was delivered is in the streams, and that what is there
// twice was tried twice.
func (y *tally) compare(t *testing.T, client *goredis.ClusterClient) (twice int) {
	t.Helper()
	came := map[string]int{}
	for stream := range tallied {
		for _, id := range entries(t, client, fmt.Sprint("stream-", stream)) {
			came[id]++
		}
	}
	lost := 0
	for id := range y.delivered {
		if came[fmt.Sprint(id)] == 0 {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d messages are delivered and lost", lost, len(y.delivered))
	}
	for id, n := range came {
		var number int
		fmt.Sscan(id, &number)
		if n > y.attempts[number] {
			t.Errorf("message %s came %d times in %d attempts", id, n, y.attempts[number])
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

// A master is killed while messages flow, and its replica takes its place: it goes on by
// itself, and what was delivered is there, for the replica had it. With nobody behind
// the new master nothing is delivered, until what was killed is there again.
func TestSinkMasterFailsOver(t *testing.T) {
	t.Parallel()
	c, client := newCluster(t, 3)
	s, err := NewSink(SinkConfig{URL: URL(c.URL()), Stream: "{{.Kind}}", Replicas: 1, ReplicaTimeout: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	y := startTally(t, s)
	wait(t, "messages flow", func() bool { return y.count() > 1000 })
	dead := c.Owner(t.Context(), "stream-0")
	c.Failover(t.Context(), false) // not before it was seen that the master is away
	impatient(c, true)
	dead.Kill()
	wait(t, "the sink says that a server is away", s.Away)
	c.Failover(t.Context(), true)
	wait(t, "a replica takes its place", func() bool {
		now := c.Owner(t.Context(), "stream-0")
		return now != nil && now != dead
	})
	impatient(c, false)
	content, err := NewSink(SinkConfig{URL: URL(dead.URL() + "," + strings.TrimPrefix(c.URL(), "redis://")), Stream: "{{.Kind}}-besides"})
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	var besides []posthaste.RawDelivery
	for n := range tallied {
		besides = append(besides, spread(n, tallied))
	}
	for _, r := range deliver(t, content, besides...) {
		if r.Err != nil {
			t.Errorf("without asking for replicas: %v", r.Err)
		}
	}
	wait(t, "the sink says that its masters are there", func() bool { return !s.Away() })
	wait(t, "a message is on the new master alone", func() bool { return y.failed("0 of 1 replicas") })
	if err := dead.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait(t, "what was killed is a replica", func() bool { return dead.Follows(t.Context()) })
	after := y.count()
	wait(t, "messages flow again", func() bool { return y.count() > after+1000 })
	y.end()
	twice := y.compare(t, client)
	t.Logf("%d delivered, %d attempts failed, %d came twice", y.count(), len(y.errors), twice)
}

// A slot moves while messages flow, as an operator moves it: no attempt fails, and
// nothing comes twice or is lost.
func TestSinkSlotMoves(t *testing.T) {
	t.Parallel()
	c, client := newCluster(t, 0)
	s, err := NewSink(SinkConfig{URL: URL(c.Nodes[0].URL()), Stream: "{{.Kind}}"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	y := startTally(t, s)
	wait(t, "messages flow", func() bool { return y.count() > 1000 })
	for range 3 {
		from := c.Owner(t.Context(), "stream-0")
		to := c.Nodes[0]
		if to == from {
			to = c.Nodes[1]
		}
		err := c.Move(t.Context(), "stream-0", from, to, func() {
			// Where it is by now, only who was sent there may add.
			before := y.count()
			wait(t, "messages flow beside the move", func() bool { return y.count() > before+1000 })
		})
		if err != nil {
			t.Fatal(err)
		}
		before := y.count()
		wait(t, "messages flow after the move", func() bool { return y.count() > before+1000 })
	}
	y.end()
	if twice := y.compare(t, client); twice > 0 || len(y.errors) > 0 {
		t.Errorf("%d came twice, %d attempts failed: %v", twice, len(y.errors), errors.Join(y.errors[:min(3, len(y.errors))]...))
	}
}

// A cluster that does not serve holds the messages in hand, for as long as there is
// time, and then tells its own words.
func TestClusterDown(t *testing.T) {
	t.Parallel()
	c, client := newCluster(t, 0)
	s, err := NewSink(SinkConfig{URL: URL(c.Nodes[0].URL()), Stream: "{{.Kind}}"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	owner := c.Owner(t.Context(), "stream-1")
	slot := redis.Slot("stream-1")
	wait(t, "the slot is nobody's", func() bool {
		for _, n := range c.Nodes { // some may have heard of it anew from those who come later
			if err := n.Client.ClusterDelSlots(t.Context(), slot).Err(); err != nil && !strings.Contains(err.Error(), "already unassigned") {
				t.Fatal(err)
			}
		}
		return c.Owner(t.Context(), "stream-1") == nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	r := s.Deliver(ctx, []posthaste.RawDelivery{spread(1, tallied)})
	wantRetried(t, r[0], "CLUSTERDOWN")
	if !errors.Is(r[0].Err, context.DeadlineExceeded) {
		t.Error(r[0].Err)
	}
	done := make(chan error, 1)
	go func() { done <- deliver(t, s, spread(1, tallied))[0].Err }()
	if err := owner.Client.ClusterAddSlots(t.Context(), slot).Err(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	var n int64
	wait(t, "the cluster serves", func() bool {
		n, err = client.XLen(t.Context(), "stream-1").Result()
		return err == nil
	})
	if n != 1 {
		t.Errorf("the stream has %d entries", n)
	}
}
