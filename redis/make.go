package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

// remake creates the keys of a queue if the registry has the queue, and passes its options on to
// them: the process that created or changed it may have been killed before it did so.
func (e *Engine) remake(ctx context.Context, q *queue) error {
	all, err := e.registry.read(ctx)
	if err != nil {
		return err
	}
	if now := all[q.name]; now != nil && now.number == q.messages {
		if err = e.make(ctx, now); err == nil {
			_, err = e.renew(ctx, now) // "gone": the caller's next try finds out why
		}
	}
	return readError(err)
}

// make creates the keys of a queue. If the queue was dropped in the meantime, it removes them
// again: processes that still know the queue would send messages that no worker finds.
func (e *Engine) make(ctx context.Context, q *queue) error {
	if _, err := makeScript.run(ctx, e.client, q.keys, arguments{{"number", q.numberArg}, {"limits", q.limits}, {"created", q.created}, {"revision", q.revision()}}); err != nil {
		return err
	}
	is, err := e.client.HGet(ctx, e.keys.queues(), q.name).Result()
	if err != nil && !errors.Is(err, goredis.Nil) {
		return err
	}
	if strings.HasPrefix(is, fmt.Sprintf("%d %d ", q.number, q.created)) {
		return nil
	}
	_, err = e.clear(ctx, q.name, q.created)
	return err
}

// clear removes the keys of a queue that is being dropped and of its further subscriptions.
// It returns the fields of those subscriptions in the registry.
func (e *Engine) clear(ctx context.Context, name string, created any) (fields arguments, err error) {
	now, err := e.client.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	for range 5 {
		version, err := e.client.HGet(ctx, e.keys.of(name, "meta"), "readers").Result()
		if err != nil && !errors.Is(err, goredis.Nil) {
			return nil, err
		}
		all, err := e.client.HKeys(ctx, e.keys.queues()).Result()
		if err != nil {
			return nil, err
		}
		fields = nil
		names := append(e.keys.queue(name, true), e.keys.ticked(name), e.keys.unique(name), e.keys.uniqueLine(name), e.keys.pauses(name))
		names = append(names, e.chartKeys(name, now)...)
		for _, field := range all {
			if of, subscription, further := strings.Cut(field, ":"); further && of == name {
				fields = append(fields, arg{is: field})
				names = append(names, e.keys.subscription(name, subscription, true)...)
			}
		}
		reply, err := clearScript.run(ctx, e.client, names, arguments{{"created", created}, {"readers", version}})
		if err != nil || reply == "ok" {
			return fields, err
		}
	}
	return nil, &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "queue " + quote.Name(name) + " gets new subscriptions while it is being dropped", Hint: "try again"}
}
