package nats

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste"
)

const (
	// patience is how long a message may wait before Doctor reports it.
	patience = 5 * time.Minute
	// clockSkew is the tolerated difference between the clocks of this machine and of the servers.
	clockSkew = 2 * time.Second
)

// Vitals implements [posthaste.Observer].
func (e *Engine) Vitals(ctx context.Context) (v posthaste.Vitals, err error) {
	workers, err := e.Workers(ctx)
	if err != nil {
		return v, err
	}
	for _, w := range workers {
		if !w.LostAt.IsZero() {
			v.OverdueWorkers++
			continue
		}
		v.Workers++
		v.HeartbeatAge = max(v.HeartbeatAge, e.clock.now().Sub(w.HeartbeatAt))
	}
	return v, nil
}

// Doctor implements [posthaste.Observer].
func (e *Engine) Doctor(ctx context.Context) (found []posthaste.Finding, err error) {
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	found = append(found, e.doctorSync()...)
	if err := e.setClock(ctx); err != nil {
		return nil, err
	}
	if off := time.Duration(e.clock.offset.Load()); off.Abs() > clockSkew {
		found = append(found, posthaste.Finding{Check: "clock", Message: fmt.Sprintf("the clock of this machine differs from that of the NATS server by %s", off.Round(time.Millisecond)), Hint: "synchronize the clocks, for example by NTP"})
	}
	all, err := e.allQueues(ctx)
	if err != nil {
		return nil, err
	}
	for _, q := range all {
		of, err := e.doctorQueue(ctx, q)
		if posthaste.CodeOf(err) == posthaste.CodeNotFound {
			continue // it was dropped meanwhile
		}
		if err != nil {
			return nil, err
		}
		found = append(found, of...)
	}
	slices.SortStableFunc(found, func(a, b posthaste.Finding) int {
		switch {
		case a.Fault == b.Fault:
			return 0
		case a.Fault:
			return -1
		}
		return 1
	})
	return found, nil
}

// doctorQueue looks at the stream and the consumers of a queue.
func (e *Engine) doctorQueue(ctx context.Context, q *queue) (found []posthaste.Finding, err error) {
	stream, err := e.js.Stream(ctx, q.stream)
	if err != nil {
		return nil, e.queueError(ctx, q, err)
	}
	found = doctorReplicas(q.Name, stream.CachedInfo())
	consumers, err := e.consumers(ctx, q)
	if err != nil {
		return nil, err
	}
	var wanted []string
	for name := range keepers {
		wanted = append(wanted, name)
	}
	wanted = append(wanted, q.deliverers()...)
	slices.Sort(wanted)
	for _, name := range wanted {
		if consumers[name] == nil {
			found = append(found, posthaste.Finding{Check: "consumers", Fault: true, Queue: q.Name, Message: fmt.Sprintf("queue %s lacks the consumer %s: NATS confirms messages that it does not store", q.Name, name),
				Hint: "stop what deletes consumers, then repeat the creation of any subscription of the queue with its options, which makes all consumers again"})
		}
	}
	info, err := e.infoOf(ctx, q)
	if err != nil {
		return nil, err
	}
	for _, s := range info.Subscriptions {
		if s.OldestAge > patience && q.PausedAt.IsZero() {
			found = append(found, posthaste.Finding{Check: "behind", Queue: q.Name, Subscription: s.Name, Message: fmt.Sprintf("the oldest message of subscription %s of queue %s waits for %s", s.Name, q.Name, s.OldestAge.Round(time.Second)),
				Hint: "check that a worker for it runs, or start more"})
		}
	}
	return found, nil
}

// doctorReplicas reports a stream that would not survive the loss of a server, or that lacks replicas.
func doctorReplicas(queue string, info *jetstream.StreamInfo) (found []posthaste.Finding) {
	if info.Config.Replicas < 3 {
		found = append(found, posthaste.Finding{Check: "replicas", Queue: queue, Message: fmt.Sprintf("queue %s is stored on %d server: if that is lost, so are its messages", queue, info.Config.Replicas),
			Hint: "run a cluster of three servers, and create queues with replicas=3 in the URL"})
	}
	if info.Cluster == nil {
		return found
	}
	if info.Cluster.Leader == "" && info.Config.Replicas > 1 {
		found = append(found, posthaste.Finding{Check: "replicas", Fault: true, Queue: queue, Message: fmt.Sprintf("the stream of queue %s has no leader", queue), Hint: "check that a majority of the NATS servers runs"})
	}
	for _, r := range info.Cluster.Replicas {
		if r.Offline || !r.Current {
			found = append(found, posthaste.Finding{Check: "replicas", Queue: queue, Message: fmt.Sprintf("server %s does not have all messages of queue %s (offline: %v)", r.Name, queue, r.Offline),
				Hint: "start it, or wait until it has caught up"})
		}
	}
	return found
}
