package redisstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste/internal/redis"
)

// find returns a client of the server that has a key. alone reports that there is no
// cluster, as far as this user may ask.
func (b *sourceBroker) find(ctx context.Context, key string) (client *goredis.Client, alone bool, err error) {
	b.mu.Lock()
	all := slices.Concat(b.addresses, b.known)
	b.mu.Unlock()
	var faults error
	for _, i := range rand.Perm(len(all)) {
		client := b.client(all[i])
		//lint:ignore SA1019 servers before Redis 7 have no other command
		spans, err := client.ClusterSlots(ctx).Result()
		switch {
		case err == nil:
			return b.owner(client, all[i], spans, redis.Slot(key))
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

// cause returns the more specific of two errors: one from a server before a network error.
func cause(a, b error) error {
	var reply goredis.Error
	if a == nil || errors.As(b, &reply) {
		return b
	}
	return a
}

// noCluster reports whether a server answers that it is not part of a cluster, or that this
// user may not ask.
func noCluster(err error) bool {
	return goredis.IsPermissionError(err) || goredis.HasErrorPrefix(err, "This instance has cluster support disabled") || goredis.HasErrorPrefix(err, "unknown command")
}

// owner returns a client of the master of a slot, according to the server at an address.
func (b *sourceBroker) owner(asked *goredis.Client, address string, spans []goredis.ClusterSlot, slot int) (*goredis.Client, bool, error) {
	var known, all []string
	master := ""
	for _, span := range spans {
		for i, n := range span.Nodes { // the first one is the master
			at := redis.Absolute(n.Addr, address)
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
		return nil, false, fmt.Errorf("no server of the cluster has slot %d, in which the stream is", slot)
	}
	return b.client(master), false, nil
}
