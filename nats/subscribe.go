package nats

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste"
)

// maxSubscriptions bounds the subscriptions of a queue. Each has consumers of its own.
const maxSubscriptions = 20

// Subscribe implements [posthaste.QueueAdmin]. From [posthaste.FromOldest] begins with the messages that
// another subscription has not settled. The option Scheduled is ignored: the subscription always gets
// messages that were scheduled before it, because the server stores them again when they fall due.
func (e *Engine) Subscribe(ctx context.Context, queueName, name string, o posthaste.SubscriptionOptions) error {
	if err := posthaste.CheckName("subscription", name); err != nil {
		return err
	}
	if err := checkSubscription(&o); err != nil {
		return err
	}
	made := false
	q, err := e.changeQueue(ctx, queueName, func(q *queue) (bool, error) {
		made = false
		if s := q.subscription(name); s != nil {
			if cmp.Or(s.From, posthaste.FromNow) != o.From || !reflect.DeepEqual(s.Filter, o.Filter) {
				return false, &posthaste.Error{Code: posthaste.CodeConflict, Field: "subscription", Message: "subscription " + quoted(name) + " of queue " + quoted(queueName) + " exists with different options",
					Hint: "unsubscribe first, or use another name"}
			}
			return false, nil
		}
		if len(q.Subscriptions) >= maxSubscriptions {
			return false, &posthaste.Error{Code: posthaste.CodeTooLarge, Field: "subscription", Message: "queue " + quoted(queueName) + " has " + strconv.Itoa(maxSubscriptions) + " subscriptions, which is the maximum", Hint: "unsubscribe one"}
		}
		q.Subscriptions = append(q.Subscriptions, subscription{Name: name, Filter: o.Filter, From: o.From, CreatedAt: e.clock.now(), AckWait: e.ackWait})
		slices.SortFunc(q.Subscriptions, func(a, b subscription) int { return strings.Compare(a.Name, b.Name) })
		made = true
		return true, nil
	})
	if err != nil {
		return err
	}
	// Even if the subscription exists: the process that stored it may have been killed here.
	if err := e.ensureConsumers(ctx, q); err != nil {
		return err
	}
	if !made {
		return nil
	}
	return e.record(ctx, "subscribe", queueName, 0, o.Details(name))
}

// checkSubscription checks options, and normalizes them so that they can be compared.
func checkSubscription(o *posthaste.SubscriptionOptions) error {
	if err := o.Complete(); err != nil {
		return err
	}
	if o.MaxLag > 0 {
		return unsupported("max_lag", "max_lag is not supported")
	}
	return nil
}

// Unsubscribe implements [posthaste.QueueAdmin].
func (e *Engine) Unsubscribe(ctx context.Context, queueName, name string, o posthaste.DropOptions) error {
	if err := posthaste.CheckName("subscription", name); err != nil {
		return err
	}
	if o.IfEmpty {
		if err := e.refuseContents(ctx, queueName, name); err != nil {
			return err
		}
	}
	var was *queue
	q, err := e.changeQueue(ctx, queueName, func(q *queue) (bool, error) {
		copied := *q
		was = &copied
		at := slices.IndexFunc(q.Subscriptions, func(s subscription) bool { return s.Name == name })
		if at < 0 {
			return false, notFound("subscription", "queue %s has no subscription %s", quoted(queueName), quoted(name))
		}
		if len(q.Subscriptions) == 1 {
			return false, &posthaste.Error{Code: posthaste.CodeConflict, Field: "subscription", Message: "subscription " + quoted(name) + " is the last one of queue " + quoted(queueName), Hint: "drop the queue, or add another subscription first"}
		}
		was.Subscriptions = slices.Clone(q.Subscriptions)
		q.Subscriptions = slices.Delete(q.Subscriptions, at, at+1)
		return true, nil
	})
	if err != nil {
		return err
	}
	for _, lane := range was.lanes() {
		if err := e.js.DeleteConsumer(ctx, q.stream, q.consumer(name, lane)); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return e.readError(err)
		}
	}
	if err := e.purgeSubscription(ctx, q, name); err != nil {
		return err
	}
	return e.record(ctx, "unsubscribe", queueName, 0, map[string]any{"subscription": name})
}

// purgeSubscription removes the entries of a subscription that has no consumers any more: without them
// its waiting retries are gone, but the keepers hold its schedules, dead letters and notes.
func (e *Engine) purgeSubscription(ctx context.Context, q *queue, name string) error {
	for _, filter := range []string{q.subjects.under("r", subjectToken(name), ">"), q.subjects.under("s", "*", subjectToken(name)), q.subjects.under("d", subjectToken(name), ">"), q.subjects.under("n", subjectToken(name), ">")} {
		if _, err := e.purge(ctx, q.stream, filter); err != nil {
			return err
		}
	}
	return nil
}

// dropOrphanConsumers finishes the work of processes that were killed while they unsubscribed. They leave
// consumers of subscriptions that no longer exist, for which the stream would keep all later messages.
func (e *Engine) dropOrphanConsumers(ctx context.Context) error {
	for _, q := range e.queues.listed() {
		if !q.Ready {
			continue
		}
		consumers, err := e.consumers(ctx, q)
		if posthaste.CodeOf(err) == posthaste.CodeNotFound {
			continue
		}
		if err != nil {
			return err
		}
		// A subscription is in the entry before it has consumers, so that one without an entry is dropped.
		fresh, err := e.freshQueue(ctx, q.Name)
		if posthaste.CodeOf(err) == posthaste.CodeNotFound || err == nil && fresh.stream != q.stream {
			continue
		}
		if err != nil {
			return err
		}
		for name := range consumers {
			at, is := strings.CutPrefix(name, "sub-")
			if end := strings.LastIndex(at, "-"); is && end >= 0 && fresh.subscription(nameOf(at[:end])) == nil {
				if err := e.js.DeleteConsumer(ctx, q.stream, name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
					return e.readError(err)
				}
				if err := e.purgeSubscription(ctx, q, nameOf(at[:end])); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
