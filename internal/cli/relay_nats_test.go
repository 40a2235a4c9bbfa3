//go:build unix

package cli_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/nats"
	posthasteredis "github.com/posthaste-mq/posthaste/redis"
)

// TestRelayIntoNATS relays from Redis into NATS, and from there into another Redis.
func TestRelayIntoNATS(t *testing.T) {
	t.Parallel()
	first, server, last := startRedis(t), startNATS(t), startRedis(t)
	source, target := storeOf(posthasteredis.Open(t.Context(), first.URL()))(t), storeOf(posthasteredis.Open(t.Context(), last.URL()))(t)
	between := storeOf(nats.Open(t.Context(), server.URL()))(t)
	const count = 50
	fill(t, source, "orders", count)
	for engine, queue := range map[posthaste.Store]string{between: "orders", target: "all"} {
		if err := engine.CreateQueue(t.Context(), queue, posthaste.QueueOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	into := start(t, "", nil, "relay", "--queue", "orders", "--redis-url", first.URL(), "--to-engine", server.URL(), "--set", "origin=shop")
	from := start(t, "", nil, "relay", "--queue", "orders", "--nats-url", server.URL(), "--to-engine", last.URL(), "--set", "origin=hub", "--set", "to_queue=all")
	seen := receiveAll(t, target, "all", count)
	for payload, d := range seen {
		if d.Kind != "placed" || d.Key != "k"+payload || !strings.HasPrefix(d.Headers[posthaste.HeaderMessageID], "shop-") || d.Headers["posthaste-path"] != "shop/orders hub/orders" {
			t.Errorf("%s arrives as %+v", payload, d)
		}
	}
	if sinks := destinations(t, source, "orders"); len(sinks) != 1 || !strings.HasPrefix(sinks[0], "NATS at "+server.Address()) {
		t.Errorf("the destination is %q", sinks)
	}
	if sinks := destinations(t, between, "orders"); len(sinks) != 1 || !strings.HasPrefix(sinks[0], "Redis at "+last.Address()) {
		t.Errorf("the destination of the second relay is %q", sinks)
	}
	for _, p := range []*process{into, from} {
		if code := p.stop(syscall.SIGTERM); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
}

// receiveAll receives count different messages, and returns them by their payloads.
func receiveAll(t *testing.T, engine posthaste.Store, queue string, count int) map[string]posthaste.RawDelivery {
	t.Helper()
	seen := map[string]posthaste.RawDelivery{}
	eventually(t, "all messages arrive", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		r, err := engine.Receive(ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: queue}, Max: count, Lease: time.Minute})
		if err != nil {
			return err
		}
		var done []posthaste.Settlement
		for _, d := range r.Deliveries {
			seen[string(d.Payload)] = d
			done = append(done, posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeDone})
		}
		if _, err := engine.Settle(ctx, done); err != nil {
			return err
		}
		if len(seen) != count {
			return fmt.Errorf("%d of %d are there", len(seen), count)
		}
		return nil
	})
	return seen
}
