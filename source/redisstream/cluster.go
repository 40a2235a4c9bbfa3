package redisstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	servers "github.com/posthaste-mq/posthaste/internal/redis"
)

// errAlone is that of one of several servers of which nobody knows what they have to do
// with each other.
var errAlone = errors.New("several servers are named, and this one does not say that it is part of a cluster")

// find returns a client of the server that has a key. alone says that there is no
// cluster, as far as this user may know.
func (b *broker) find(ctx context.Context, key string) (client *redis.Client, alone bool, err error) {
	b.mu.Lock()
	all := slices.Concat(b.addresses, b.known)
	b.mu.Unlock()
	var faults error
	for _, i := range rand.Perm(len(all)) {
		client := b.client(all[i])
		//lint:ignore SA1019 servers before Redis 7 have nothing else
		spans, err := client.ClusterSlots(ctx).Result()
		switch {
		case err == nil:
			return b.owner(client, all[i], spans, servers.Slot(key))
		case !noCluster(err):
		case len(b.addresses) == 1:
			return client, true, nil
		default:
			err = fmt.Errorf("%w (%w)", errAlone, err)
		}
		client.Close()
		faults = cause(faults, err)
	}
	return nil, false, faults
}

// cause is what of two errors says more: what a server said goes before that there is none.
func cause(a, b error) error {
	var said redis.Error
	if a == nil || errors.As(b, &said) {
		return b
	}
	return a
}

// noCluster says whether a server answers that it is part of no cluster, or that this
// user may not know.
func noCluster(err error) bool {
	text := err.Error()
	return strings.Contains(text, "cluster support disabled") || strings.HasPrefix(text, "NOPERM") || strings.Contains(text, "unknown command")
}

// owner returns a client of the master of a slot, as the server at an address tells it.
func (b *broker) owner(asked *redis.Client, address string, spans []redis.ClusterSlot, slot int) (*redis.Client, bool, error) {
	var known, all []string
	master := ""
	for _, span := range spans {
		for i, n := range span.Nodes { // the master comes first
			at := servers.Absolute(n.Addr, address)
			all = append(all, at)
			if !slices.Contains(known, at) && !slices.Contains(b.addresses, at) {
				known = append(known, at)
			}
			if i == 0 && span.Start <= slot && slot <= span.End {
				master = at
			}
		}
	}
	b.takeovers.Told(all...)
	b.mu.Lock()
	b.known = known
	b.mu.Unlock()
	if master == address {
		return asked, false, nil
	}
	asked.Close()
	if master == "" {
		return nil, false, fmt.Errorf("no server of the cluster has slot %d, which is that of the stream", slot)
	}
	return b.client(master), false, nil
}
