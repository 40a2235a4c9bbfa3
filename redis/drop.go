package redis

import (
	"context"
	"errors"
	"strings"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

func (e *Engine) dropKeys() []string {
	return []string{e.keys.queues(), e.keys.schedules(), e.keys.ticks()}
}

// DropQueue implements [posthaste.QueueAdmin].
func (e *Engine) DropQueue(ctx context.Context, name string) error {
	reply, err := dropScript.run(ctx, e.client, e.dropKeys(), arguments{{"name", name}, {"created", ""}})
	if err == nil && reply == int64(0) {
		return &posthaste.Error{Code: posthaste.CodeNotFound, Field: "queue", Message: "queue " + quote.Name(name) + " does not exist"}
	}
	if err != nil {
		return readError(err)
	}
	created, ok := reply.(int64)
	if !ok {
		return unexpected("when queue "+quote.Name(name)+" was created", reply)
	}
	if created > 0 { // this call dropped it
		err = e.record(ctx, record{Action: "drop", Queue: name})
	}
	err = errors.Join(err, e.dropMarked(ctx, name, max(created, -created)))
	e.registry.forget(name)
	return readError(err)
}

// dropMarked removes a queue that is marked as dropped and has this time of creation. It does
// not touch another queue of the same name.
func (e *Engine) dropMarked(ctx context.Context, name string, created any) error {
	fields, err := e.clear(ctx, name, created)
	if err == nil {
		_, err = dropScript.run(ctx, e.client, e.dropKeys(), append(arguments{{"name", name}, {"created", created}}, fields...))
	}
	return err
}

// finishDrop completes an interrupted drop. is is the queue's value in the registry.
func (e *Engine) finishDrop(ctx context.Context, name, is string) error {
	fields := strings.SplitN(is, " ", 3)
	if len(fields) != 3 {
		return unexpected("what queue "+quote.Name(name)+" is", is)
	}
	return readError(e.dropMarked(ctx, name, fields[1]))
}

// dropAll completes all interrupted drops.
func (e *Engine) dropAll(ctx context.Context) (err error) {
	for name, is := range e.registry.drops() {
		err = errors.Join(err, e.finishDrop(ctx, name, is))
	}
	return err
}
