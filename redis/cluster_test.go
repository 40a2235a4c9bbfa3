package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/enginetest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
)

// node is a server of a cluster, with a client of its own.
type node struct {
	*devbroker.Redis
	client *goredis.Client
	id     string
}

// nodes starts n servers of a cluster. The first three are masters, which share the
// slots, and each further one is a replica of the next of them.
func nodes(t *testing.T, n int, args ...string) (all []*node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range n {
		r, err := devbroker.StartRedisNode(ctx, t.TempDir(), args...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Stop)
		c := goredis.NewClient(&goredis.Options{Addr: r.Address()})
		t.Cleanup(func() { c.Close() })
		id, err := c.Do(ctx, "cluster", "myid").Text()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &node{r, c, id})
		if i < 3 {
			err = c.ClusterAddSlotsRange(ctx, i*16384/3, (i+1)*16384/3-1).Err()
		}
		if host, port, _ := net.SplitHostPort(r.Address()); err == nil {
			err = all[0].client.Do(ctx, "cluster", "meet", host, port, r.BusPort()).Err()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the cluster serves", func() bool {
		for _, m := range all {
			info, err := m.client.ClusterInfo(ctx).Result()
			if err != nil || !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", n)) || !strings.Contains(info, "cluster_size:3") {
				return false
			}
		}
		return true
	})
	for i, m := range all[3:] {
		until(t, "a replica knows its master", func() bool { return m.client.ClusterReplicate(ctx, all[i].id).Err() == nil })
	}
	for _, m := range all[3:] {
		until(t, "a replica has what its master has", m.follows)
	}
	return all
}

// follows says that the node is a replica that has all, also in its append-only file,
// and gets what comes.
func (m *node) follows() bool {
	is, err := about(context.Background(), m.client)
	return err == nil && is["role"] == "slave" && is["master_link_status"] == "up" && is["loading"] == "0" &&
		is["aof_rewrite_in_progress"] == "0" && is["aof_rewrite_scheduled"] == "0"
}

// cluster starts one of three masters.
func cluster(t *testing.T) (addresses []string) {
	t.Helper()
	for _, m := range nodes(t, 3) {
		addresses = append(addresses, m.Address())
	}
	return addresses
}

// In a cluster everything of a queue is in one slot, and queues are in many.
func TestEngineInCluster(t *testing.T) {
	addresses := cluster(t)
	client := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: addresses})
	t.Cleanup(func() { client.Close() })
	can := enginetest.Capabilities{NoSendAcross: true}
	enginetest.RunWith(t, can, func(t *testing.T) posthaste.Engine {
		e, err := New(t.Context(), client, WithPrefix(fmt.Sprintf("cluster%d", prefixes.Add(1))))
		if err != nil {
			t.Fatal(err)
		}
		return e
	})
	// One of its servers, opened by itself, says what to do instead.
	for i, address := range addresses {
		e, err := Open(t.Context(), "redis://"+address, WithPrefix("alone"))
		for n := 0; err == nil && n < 100; n++ { // the one that has the registry
			err = e.QueueCreate(t.Context(), fmt.Sprintf("q%d", n), posthaste.QueueOptions{})
		}
		var said *posthaste.Error
		if !errors.As(err, &said) || said.Code != posthaste.Unsupported || !strings.Contains(said.Hint, "redis.New") {
			t.Errorf("server %d of the cluster by itself: %v", i, err)
		}
		if e != nil {
			e.Close()
		}
	}
	e, err := New(t.Context(), client, WithPrefix("across"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if err := e.QueueCreate(t.Context(), name, posthaste.QueueOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.Send(t.Context(), posthaste.Message{Queue: "a"}, posthaste.Message{Queue: "b"}); posthaste.CodeOf(err) != posthaste.Unsupported {
		t.Errorf("sending to two queues: %v", err)
	}
	// A key that was used for one queue is refused for another, which is in another slot.
	request := posthaste.Idempotency{Scope: "s", Key: "k", Digest: []byte("a"), Window: time.Hour}
	if _, err := e.SendIdempotent(t.Context(), request, posthaste.Message{Queue: "a"}); err != nil {
		t.Fatal(err)
	}
	request.Digest = []byte("b")
	if _, err := e.SendIdempotent(t.Context(), request, posthaste.Message{Queue: "b"}); posthaste.CodeOf(err) != posthaste.KeyReused {
		t.Errorf("the same key for another queue: %v", err)
	}
}
