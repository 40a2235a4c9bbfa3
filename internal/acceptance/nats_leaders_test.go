//go:build unix

package acceptance

import (
	"context"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/history"
)

// replicas asks for the state of the replicas of a stream or a consumer.
type replicas func(ctx context.Context) (*jetstream.ClusterInfo, error)

// replicasFor returns all that a queue needs so that its messages flow: its stream, the consumers of its
// subscriptions, and the store, which has the workers.
func (n *natsStage) replicasFor(queue string) (all []replicas) {
	n.Helper()
	name := n.stream(queue)
	for _, stream := range []string{name, "KV_posthaste-store"} {
		all = append(all, func(ctx context.Context) (*jetstream.ClusterInfo, error) {
			s, err := n.js.Stream(ctx, stream)
			if err != nil {
				return nil, err
			}
			return s.CachedInfo().Cluster, nil
		})
	}
	n.until("the consumers of "+queue+" are listed", func() bool {
		all = all[:2]
		s, err := n.js.Stream(n.ctx, name)
		if err != nil {
			return false
		}
		list := s.ConsumerNames(n.ctx)
		for consumer := range list.Name() {
			if strings.HasPrefix(consumer, "sub-") {
				all = append(all, func(ctx context.Context) (*jetstream.ClusterInfo, error) {
					c, err := n.js.Consumer(ctx, name, consumer)
					if err != nil {
						return nil, err
					}
					return c.CachedInfo().Cluster, nil
				})
			}
		}
		return list.Err() == nil && len(all) > 2
	})
	return all
}

// agree reports whether each of them satisfies a condition, as its leader tells within half a second.
func agree(ctx context.Context, all []replicas, is func(*jetstream.ClusterInfo) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second/2)
	defer cancel()
	for _, ask := range all {
		if c, err := ask(ctx); err != nil || c == nil || !is(c) {
			return false
		}
	}
	return true
}

func hasLeader(c *jetstream.ClusterInfo) bool { return c.Leader != "" }

// isWhole reports whether there is a leader, and both others are up to date.
func isWhole(c *jetstream.ClusterInfo) bool { return devbroker.Whole(c, 3) }

// watchLeaders looks for the leaders of a queue until stop is called, which returns the times at which one was
// missing, by the clock of the history.
func (n *natsStage) watchLeaders(queue string) (stop func() (missing []time.Duration)) {
	n.Helper()
	all := n.replicasFor(queue)
	ctx, cancel := context.WithCancel(n.ctx)
	found := make(chan []time.Duration, 1)
	go func() {
		var missing []time.Duration
		for ctx.Err() == nil {
			if !agree(ctx, all, hasLeader) && ctx.Err() == nil {
				missing = append(missing, history.Now())
			}
			rest(ctx, 20*time.Millisecond)
		}
		found <- missing
	}()
	return func() []time.Duration {
		cancel()
		return <-found
	}
}
