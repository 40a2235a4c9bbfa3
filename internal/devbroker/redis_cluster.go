//go:build unix

package devbroker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// RedisSlots is the number of hash slots of a Redis Cluster.
const RedisSlots = 16384

// RedisCluster is a Redis Cluster on the loopback address.
type RedisCluster struct {
	// Nodes are its servers, beginning with those that were masters at the start.
	Nodes []*RedisNode
}

// RedisNode is a server of a cluster with a client.
type RedisNode struct {
	*Redis
	Client *goredis.Client
	ID     string
}

// StartRedisCluster starts a cluster that stores its data below dir, and waits until it
// serves. The masters share the slots; each replica replicates the next master. further are
// arguments as for [StartRedis].
func StartRedisCluster(ctx context.Context, dir string, masters, replicas int, further ...string) (*RedisCluster, error) {
	c := &RedisCluster{}
	if err := c.start(ctx, dir, masters, replicas, further); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

func (c *RedisCluster) start(ctx context.Context, dir string, masters, replicas int, further []string) error {
	for i := range masters + replicas {
		if err := c.join(ctx, filepath.Join(dir, fmt.Sprint("node", i)), further); err != nil {
			return err
		}
		if i < masters {
			if err := c.Nodes[i].Client.ClusterAddSlotsRange(ctx, i*RedisSlots/masters, (i+1)*RedisSlots/masters-1).Err(); err != nil {
				return err
			}
		}
	}
	serves := func() bool {
		for _, n := range c.Nodes {
			info, err := n.Client.ClusterInfo(ctx).Result()
			if err != nil || !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", len(c.Nodes))) ||
				!strings.Contains(info, fmt.Sprintf("cluster_size:%d\r", masters)) {
				return false
			}
		}
		return true
	}
	if err := until(ctx, "the cluster serves", serves); err != nil {
		return err
	}
	for i, n := range c.Nodes[masters:] {
		master := c.Nodes[i%masters].ID
		if err := until(ctx, "a replica knows its master", func() bool { return n.Client.ClusterReplicate(ctx, master).Err() == nil }); err != nil {
			return err
		}
	}
	return until(ctx, "replicas are in sync with their masters", func() bool {
		for _, n := range c.Nodes {
			if all, err := n.Client.ClusterNodes(ctx).Result(); err != nil || strings.Count(all, "slave") != replicas {
				return false
			}
		}
		for _, n := range c.Nodes[masters:] {
			if !n.Follows(ctx) {
				return false
			}
		}
		return true
	})
}

// join starts a server with data in a new directory, and introduces it to the first one.
func (c *RedisCluster) join(ctx context.Context, dir string, further []string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	r, err := StartRedisNode(ctx, dir, further...)
	if err != nil {
		return err
	}
	n := &RedisNode{Redis: r, Client: goredis.NewClient(&goredis.Options{Addr: r.Address()})}
	c.Nodes = append(c.Nodes, n)
	if n.ID, err = n.Client.Do(ctx, "cluster", "myid").Text(); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(r.Address())
	if err != nil {
		return err
	}
	return c.Nodes[0].Client.Do(ctx, "cluster", "meet", host, port, r.BusPort()).Err()
}

// until waits for a condition.
func until(ctx context.Context, what string, met func() bool) error {
	for !met() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// Follows reports whether the node is a replica that is in sync, with a complete append-only
// file.
func (n *RedisNode) Follows(ctx context.Context) bool {
	info, err := n.Client.Info(ctx).Result()
	for _, want := range []string{"role:slave", "master_link_status:up", "loading:0", "aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0"} {
		if !strings.Contains(info, want+"\r") {
			return false
		}
	}
	return err == nil
}

// URL returns a URL of all its servers.
func (c *RedisCluster) URL() string {
	var all []string
	for _, n := range c.Nodes {
		all = append(all, n.Address())
	}
	return "redis://" + strings.Join(all, ",")
}

// Owner returns the server that has the slot of a key, according to the first server that
// answers, or nil.
func (c *RedisCluster) Owner(ctx context.Context, key string) *RedisNode {
	for _, n := range c.Nodes {
		slot, err := n.Client.ClusterKeySlot(ctx, key).Result()
		if err != nil {
			continue
		}
		//lint:ignore SA1019 sinks and sources use the same command
		spans, err := n.Client.ClusterSlots(ctx).Result()
		if err != nil {
			continue
		}
		for _, span := range spans {
			if int(slot) < span.Start || int(slot) > span.End || len(span.Nodes) == 0 {
				continue
			}
			for _, m := range c.Nodes {
				if m.ID == span.Nodes[0].ID {
					return m
				}
			}
		}
	}
	return nil
}

// Failover sets whether replicas may replace a master that is down. Servers that are down
// keep their setting.
func (c *RedisCluster) Failover(ctx context.Context, allowed bool) {
	forbidden := "yes"
	if allowed {
		forbidden = "no"
	}
	for _, n := range c.Nodes {
		_ = n.Client.ConfigSet(ctx, "cluster-replica-no-failover", forbidden).Err()
	}
}

// Move moves the slot of a key to another server, as resharding does. It calls half after
// the keys have moved and before the slot has.
func (c *RedisCluster) Move(ctx context.Context, key string, from, to *RedisNode, half func()) error {
	slot, err := from.Client.ClusterKeySlot(ctx, key).Result()
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(to.Address())
	if err != nil {
		return err
	}
	if err := errors.Join(to.Client.Do(ctx, "cluster", "setslot", slot, "importing", from.ID).Err(),
		from.Client.Do(ctx, "cluster", "setslot", slot, "migrating", to.ID).Err()); err != nil {
		return err
	}
	for {
		keys, err := from.Client.ClusterGetKeysInSlot(ctx, int(slot), 100).Result()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		args := []any{"migrate", host, port, "", 0, 5000, "keys"}
		for _, k := range keys {
			args = append(args, k)
		}
		if err := from.Client.Do(ctx, args...).Err(); err != nil {
			return err
		}
	}
	half()
	for _, n := range append([]*RedisNode{to, from}, c.Nodes...) {
		info, err := n.Client.InfoMap(ctx, "replication").Result()
		if err != nil {
			return err
		}
		if info["Replication"]["role"] != "master" {
			continue // replicas follow their masters
		}
		if err := n.Client.Do(ctx, "cluster", "setslot", slot, "node", to.ID).Err(); err != nil {
			return err
		}
	}
	return nil
}

// Stop kills all servers.
func (c *RedisCluster) Stop() {
	for _, n := range c.Nodes {
		_ = n.Client.Close()
		n.Stop()
	}
}

// Replace assigns the slots of a node to another one, which it returns, on all servers but
// the node itself.
func (c *RedisCluster) Replace(ctx context.Context, from *RedisNode) (by *RedisNode, err error) {
	for _, n := range c.Nodes {
		if n == from {
			continue
		}
		if by == nil {
			by = n
		}
		//lint:ignore SA1019 servers before Redis 7 have nothing else
		slots, err := n.Client.ClusterSlots(ctx).Result()
		if err != nil {
			return nil, err
		}
		if _, err := n.Client.Pipelined(ctx, func(pipe goredis.Pipeliner) error {
			for _, span := range slots {
				for slot := span.Start; span.Nodes[0].ID == from.ID && slot <= span.End; slot++ {
					pipe.Do(ctx, "cluster", "setslot", slot, "node", by.ID)
				}
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return by, nil
}
