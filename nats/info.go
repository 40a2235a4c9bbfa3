package nats

import (
	"context"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste"
)

// Queues implements [posthaste.Engine]. Counts lag by some milliseconds. There are no totals and no
// rates, because the server does not count removed messages.
func (e *Engine) Queues(ctx context.Context, names ...string) ([]posthaste.QueueInfo, error) {
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	var all []*queue
	var err error
	if len(names) == 0 {
		all, err = e.allQueues(ctx)
	} else {
		all, err = e.freshQueues(ctx, names)
	}
	if err != nil {
		return nil, err
	}
	infos := make([]posthaste.QueueInfo, 0, len(all))
	for _, q := range all {
		info, err := e.infoOf(ctx, q)
		if posthaste.CodeOf(err) == posthaste.CodeNotFound && len(names) == 0 {
			continue // it was dropped meanwhile
		}
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// allQueues reads the queues from the store.
func (e *Engine) allQueues(ctx context.Context) ([]*queue, error) {
	keys, err := e.kv.ListKeysFiltered(ctx, queueKey+">")
	if err != nil {
		return nil, e.readError(err)
	}
	var names []string
	for key := range keys.Keys() {
		names = append(names, nameOf(strings.TrimPrefix(key, queueKey)))
	}
	return e.freshQueues(ctx, names)
}

// freshQueues reads queues from the store, sorted, without those that do not exist.
func (e *Engine) freshQueues(ctx context.Context, names []string) (all []*queue, err error) {
	for _, name := range names {
		switch q, err := e.freshQueue(ctx, name); {
		case err == nil:
			all = append(all, q)
		case posthaste.CodeOf(err) != posthaste.CodeNotFound:
			return nil, err
		}
	}
	return sortedQueues(all), nil
}

func (e *Engine) infoOf(ctx context.Context, q *queue) (posthaste.QueueInfo, error) {
	info := posthaste.QueueInfo{Name: q.Name, Options: q.Options, CreatedAt: q.CreatedAt, PausedAt: q.PausedAt}
	consumers, err := e.consumers(ctx, q)
	if err != nil {
		return info, err
	}
	for i := range q.Subscriptions {
		s := &q.Subscriptions[i]
		of := posthaste.SubscriptionInfo{Name: s.Name, Filter: s.Filter, CountedAt: e.clock.now()}
		for _, lane := range q.lanes() {
			c := consumers[q.consumer(s.Name, lane)]
			if c == nil {
				continue
			}
			of.Depth += int64(c.NumPending)
			of.InFlight += int64(c.NumAckPending)
			if age, err := e.oldest(ctx, q, c); err != nil {
				return info, err
			} else if c.NumPending > 0 {
				of.OldestAge = max(of.OldestAge, age)
			}
		}
		if of.Dead, err = e.count(ctx, q, consumers["keep-d"], len(q.Subscriptions) > 1, q.subjects.under("d", subjectToken(s.Name), ">")); err != nil {
			return info, err
		}
		if c := consumers["keep-s"]; c != nil {
			of.Depth += int64(c.NumPending) // retries of other subscriptions included
		}
		info.Subscriptions = append(info.Subscriptions, of)
	}
	return info, nil
}

// consumers returns the state of all consumers of a queue by name.
func (e *Engine) consumers(ctx context.Context, q *queue) (map[string]*jetstream.ConsumerInfo, error) {
	stream, err := e.js.Stream(ctx, q.stream)
	if err != nil {
		return nil, e.queueError(ctx, q, err)
	}
	all := map[string]*jetstream.ConsumerInfo{}
	list := stream.ListConsumers(ctx)
	for c := range list.Info() {
		all[c.Name] = c
	}
	return all, e.queueError(ctx, q, list.Err())
}

// count returns the number of messages that a filter selects: that of the keeper, unless the keeper also
// counts those of other subscriptions.
func (e *Engine) count(ctx context.Context, q *queue, keeper *jetstream.ConsumerInfo, shared bool, filter string) (int64, error) {
	switch {
	case keeper == nil || keeper.NumPending == 0:
		return 0, nil
	case !shared:
		return int64(keeper.NumPending), nil
	}
	stream, err := e.js.Stream(ctx, q.stream)
	if err != nil {
		return 0, e.queueError(ctx, q, err)
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return 0, e.queueError(ctx, q, err)
	}
	return int64(len(info.State.Subjects)), nil
}

// oldest returns the age of the oldest message that a consumer has not delivered.
func (e *Engine) oldest(ctx context.Context, q *queue, c *jetstream.ConsumerInfo) (age time.Duration, err error) {
	if c.NumPending == 0 {
		return 0, nil
	}
	for _, filter := range c.Config.FilterSubjects {
		m, err := e.leaderGet(ctx, q.stream, map[string]any{"seq": c.Delivered.Stream + 1, "next_by_subj": filter})
		if err != nil {
			return 0, err
		}
		if m != nil {
			age = max(age, e.clock.now().Sub(m.Time))
		}
	}
	return age, nil
}
