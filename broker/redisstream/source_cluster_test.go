package redisstream

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/brokertest"
	"github.com/posthaste-mq/posthaste/internal/configtest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/source"
)

// clusterTest is a cluster, and a ledger into which a source takes a stream of it.
type clusterTest struct {
	*testing.T
	*devbroker.RedisCluster
	client *goredis.ClusterClient
	ledger posthaste.Store
	stream string
}

func newClusterTest(t *testing.T, replicas int) *clusterTest {
	t.Helper()
	c, client := newCluster(t, replicas, "--cluster-node-timeout", "2000", "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0")
	r := &clusterTest{T: t, RedisCluster: c, client: client, ledger: brokertest.Postgres(t), stream: "in"}
	r.must(r.ledger.CreateQueue(t.Context(), "orders", posthaste.QueueOptions{MaxPayload: 1000}))
	r.must(r.client.XGroupCreateMkStream(t.Context(), r.stream, "posthaste", "0").Err())
	return r
}

func (r *clusterTest) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *clusterTest) source(change func(*SourceConfig)) *source.Source {
	r.Helper()
	return brokertest.OpenSource(r.T, NewSource, r.ledger, SourceConfig{Config: source.Config{Queue: "orders", Batch: 20}, URL: URL(r.URL()), Stream: r.stream}, change)
}

// publish adds entries, and waits until a number of replicas have them.
func (r *clusterTest) publish(from, to, size, replicas int) {
	r.Helper()
	var end error
	r.until("the entries are added", func() bool { // a client has to find a new master
		end = func() error {
			master, err := r.client.MasterForKey(r.Context(), r.stream)
			if err != nil {
				return err
			}
			conn := master.Conn()
			defer conn.Close()
			for ; from < to; from++ {
				if err := conn.XAdd(r.Context(), &goredis.XAddArgs{Stream: r.stream, Values: []any{FieldMessageID, fmt.Sprint("m-", from), FieldContentType, "text/plain",
					FieldPayload, strings.Repeat("x", size-len(fmt.Sprint(from))) + fmt.Sprint(from), relay.HeaderKind, "placed"}}).Err(); err != nil {
					return err
				}
			}
			if have, err := conn.Wait(r.Context(), replicas, time.Minute).Result(); err != nil || int(have) < replicas {
				return fmt.Errorf("%d of %d replicas have it: %w", have, replicas, err)
			}
			return nil
		}()
		if end != nil {
			r.client.ReloadState(r.Context())
		}
		return end == nil
	})
}

// until waits for a condition.
func (r *clusterTest) until(what string, met func() bool) {
	r.Helper()
	testrun.Until(r, 2*time.Minute, what, met)
}

// sent returns the number of messages in the ledger.
func (r *clusterTest) sent() int {
	r.Helper()
	_, err := r.ledger.Maintain(r.Context(), posthaste.UpkeepSpace) // counts
	r.must(err)
	found, err := r.ledger.Queues(r.Context(), "orders")
	r.must(err)
	return int(found[0].Subscriptions[0].Sent)
}

// settled waits until the ledger has n messages, each once, and the cluster keeps none for the group.
func (r *clusterTest) settled(n int) {
	r.Helper()
	r.until("all entries are in the ledger", func() bool { return r.sent() >= n })
	r.until("all entries are acknowledged", func() bool {
		groups, err := r.client.XInfoGroups(r.Context(), r.stream).Result()
		return err == nil && len(groups) == 1 && groups[0].Pending == 0 && groups[0].Lag == 0
	})
	var got []string
	for {
		batch, err := r.ledger.Receive(r.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "orders"}, Max: 1000, Lease: time.Hour})
		r.must(err)
		if len(batch.Deliveries) == 0 {
			break
		}
		for _, d := range batch.Deliveries {
			got = append(got, strings.TrimLeft(string(d.Payload), "x"))
		}
	}
	slices.Sort(got)
	if all := len(got); all != n || len(slices.Compact(got)) != n {
		r.Errorf("the ledger has %d messages, want %d, each once", all, n)
	}
}

// The source reads the stream where the cluster has it, and adds refused entries where that
// stream is, whichever server the URL names.
func TestSourceCluster(t *testing.T) {
	t.Parallel()
	r := newClusterTest(t, 0)
	refused := "in.refused"
	if a, b := r.Owner(t.Context(), r.stream), r.Owner(t.Context(), refused); a == b {
		for n := 0; a == b; n++ {
			refused = fmt.Sprint("aside-", n)
			b = r.Owner(t.Context(), refused)
		}
	}
	for n, node := range r.Nodes {
		s := r.source(func(c *SourceConfig) { c.URL, c.Refused, c.Group = URL(node.URL()), refused, fmt.Sprint("group-", n) })
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("Check of %s: %v", node.Address(), err)
		}
	}
	for n := range r.Nodes { // they have read nothing
		r.must(r.client.XGroupDestroy(t.Context(), r.stream, fmt.Sprint("group-", n)).Err())
	}
	s := r.source(func(c *SourceConfig) { c.URL, c.Refused = URL(r.Nodes[0].URL()), refused })
	r.publish(0, 100, 10, 0)
	r.publish(100, 103, 2000, 0) // too large
	r.publish(103, 200, 10, 0)
	testrun.Background(r, s.Run)
	r.settled(197)
	if n := r.client.XLen(t.Context(), refused).Val(); n != 3 {
		t.Errorf("%d were put aside, want 3", n)
	}

	for _, n := range r.Nodes {
		r.must(n.Client.Do(t.Context(), "acl", "setuser", "little", "on", ">s", "+@all", "-cluster", "~*").Err())
	}
	as := func(user, url string) string { return strings.Replace(url, "redis://", "redis://"+user+"@", 1) }
	other := r.Nodes[0]
	if r.Owner(t.Context(), r.stream) == other {
		other = r.Nodes[1]
	}
	configtest.Checks(t, "wrong", r.source,
		configtest.Valid("the first is down", func(c *SourceConfig) { c.URL = URL(strings.Replace(string(c.URL), "://", "://127.0.0.1:1,", 1)) }),
		configtest.Invalid("database", "url", func(c *SourceConfig) { c.URL += "/1" }),
		configtest.Invalid("password", "url", func(c *SourceConfig) { c.URL = URL(as("me:wrong", string(c.URL))) }),
		configtest.Invalid("password, and one server is down", "url", func(c *SourceConfig) {
			c.URL = URL(as("me:wrong", strings.Replace(string(c.URL), "://", "://127.0.0.1:1,", 1)))
		}),
		configtest.Invalid("a user who may not ask", "url", func(c *SourceConfig) { c.URL = URL(as("little:s", string(c.URL))) }),
		configtest.Invalid("a user who may not ask another server", "url", func(c *SourceConfig) { c.URL = URL(as("little:s", other.URL())) }),
		configtest.Invalid("servers without a cluster", "url", func(c *SourceConfig) { c.URL = URL("redis://" + broker.Address() + "," + broker.Address()) }),
		configtest.Invalid("no stream", "stream", func(c *SourceConfig) { c.Stream = "nowhere" }),
		configtest.Unavailable("away", func(c *SourceConfig) { c.URL = "redis://127.0.0.1:1,127.0.0.1:2" }))
}

// hookedLedger is a ledger that calls a function once between a commit and its answer.
type hookedLedger struct {
	posthaste.Store
	once   sync.Once
	strike func()
}

func (e *hookedLedger) Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.Sent, error) {
	sent, err := e.Store.Send(ctx, messages...)
	if err == nil {
		e.once.Do(e.strike)
	}
	return sent, err
}

// The master is killed between commit and acknowledgment, and a replica replaces it. No
// message is lost, and none is in the ledger twice.
func TestSourceMasterFailsOver(t *testing.T) {
	t.Parallel()
	const n = 3000
	r := newClusterTest(t, 3)
	r.publish(0, n, 10, 1)
	dead, struck := r.Owner(t.Context(), r.stream), make(chan struct{})
	r.Failover(t.Context(), false) // not before the source has noticed that the master is down
	r.ledger = &hookedLedger{Store: r.ledger, strike: func() {
		dead.Kill()
		close(struck)
	}}
	s := r.source(nil)
	testrun.Background(r, s.Run)
	<-struck
	r.until("the source reports that the broker is away", s.Away)
	r.Failover(t.Context(), true)
	r.until("a replica replaces it", func() bool {
		now := r.Owner(t.Context(), r.stream)
		return now != nil && now != dead
	})
	r.publish(n, n+100, 10, 0)
	r.settled(n + 100)
	r.until("the source reports that the broker is back", func() bool { return !s.Away() })
}

// The stream's slot moves between commit and acknowledgment.
func TestSourceSlotMoves(t *testing.T) {
	t.Parallel()
	const n = 3000
	r := newClusterTest(t, 0)
	r.publish(0, n, 10, 0)
	from := r.Owner(t.Context(), r.stream)
	to := r.Nodes[0]
	if to == from {
		to = r.Nodes[1]
	}
	moved := make(chan error, 1)
	r.ledger = &hookedLedger{Store: r.ledger, strike: func() { moved <- r.Move(t.Context(), r.stream, from, to, func() {}) }}
	testrun.Background(r, r.source(nil).Run)
	r.must(<-moved)
	r.publish(n, n+100, 10, 0)
	r.settled(n + 100)
}
