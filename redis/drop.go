package redis

import (
	"context"
	"errors"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

func (e *Engine) dropKeys() []string {
	return []string{e.keys.queues(), e.keys.schedules(), e.keys.ticks()}
}

// QueueDrop implements [posthaste.Admin].
func (e *Engine) QueueDrop(ctx context.Context, name string) error {
	reply, err := dropScript.run(ctx, e.client, e.dropKeys(), name, "")
	if err == nil && reply == int64(0) {
		return &posthaste.Error{Code: posthaste.NotFound, Field: "queue", Message: "queue " + quote.Name(name) + " does not exist"}
	}
	if err == nil {
		err = e.dropMarked(ctx, name, reply)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if q := e.byName[name]; q != nil {
		delete(e.byName, name)
		delete(e.byNo, q.number)
		for _, s := range q.subs {
			delete(e.byNo, s.number)
		}
	}
	return readError(err)
}

// dropMarked drops a queue that is marked and was created then. Another of its name it
// leaves alone.
func (e *Engine) dropMarked(ctx context.Context, name string, created any) error {
	fields, err := e.clear(ctx, name, created)
	if err == nil {
		_, err = dropScript.run(ctx, e.client, e.dropKeys(), append([]any{name, created}, fields...)...)
	}
	return err
}

// finishDrop goes on with a drop that was cut short: is is what the registry has.
func (e *Engine) finishDrop(ctx context.Context, name, is string) error {
	fields := strings.SplitN(is, " ", 3)
	if len(fields) != 3 {
		return unexpected("what queue "+quote.Name(name)+" is", is)
	}
	return readError(e.dropMarked(ctx, name, fields[1]))
}

// dropAll goes on with all drops that were cut short.
func (e *Engine) dropAll(ctx context.Context) (err error) {
	e.mu.RLock()
	dropping := e.dropping
	e.mu.RUnlock()
	for name, is := range dropping {
		err = errors.Join(err, e.finishDrop(ctx, name, is))
	}
	return err
}

// clear removes the keys of a queue that is being dropped, with those of its further
// subscriptions, whose fields in the registry it returns.
func (e *Engine) clear(ctx context.Context, name string, created any) (fields []any, err error) {
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
		names := append(e.keys.queue(name, true), e.keys.ticked(name))
		for _, field := range all {
			if of, subscription, further := strings.Cut(field, ":"); further && of == name {
				fields = append(fields, field)
				names = append(names, e.keys.subscription(name, subscription, true)...)
			}
		}
		reply, err := clearScript.run(ctx, e.client, names, created, version)
		if err != nil || reply == "ok" {
			return fields, err
		}
	}
	return nil, &posthaste.Error{Code: posthaste.Unavailable, Message: "others subscribe to queue " + quote.Name(name) + " while it is being dropped", Hint: "try again"}
}
