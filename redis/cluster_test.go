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

// cluster starts one of three masters.
func cluster(t *testing.T) (addresses []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var clients []*goredis.Client
	for range 3 {
		r, err := devbroker.StartRedisNode(ctx, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Stop)
		c := goredis.NewClient(&goredis.Options{Addr: r.Address()})
		t.Cleanup(func() { c.Close() })
		addresses, clients = append(addresses, r.Address()), append(clients, c)
		from := (len(clients) - 1) * 5461
		to := min(from+5460, 16383)
		if len(clients) == 3 {
			to = 16383
		}
		if err := c.ClusterAddSlotsRange(ctx, from, to).Err(); err != nil {
			t.Fatal(err)
		}
		host, port, _ := net.SplitHostPort(r.Address())
		if err := clients[0].Do(ctx, "cluster", "meet", host, port, r.BusPort()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the cluster serves", func() bool {
		for _, c := range clients {
			info, err := c.ClusterInfo(ctx).Result()
			if err != nil || !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:3") || !strings.Contains(info, "cluster_size:3") {
				return false
			}
		}
		return true
	})
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
