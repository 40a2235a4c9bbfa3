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
func (e *Engine) DropQueue(ctx context.Context, name string, o posthaste.DropOptions) error {
	if o.IfEmpty {
		if err := e.refuseContents(ctx, name, ""); err != nil {
			return err
		}
	}
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

// refuseContents returns an error if a subscription of a queue, or any if none is named, is not
// empty. The queue is removed in a later step, because the registry may lie on another server: a
// message that is sent in between goes with the queue, as all that are sent while it is dropped do.
func (e *Engine) refuseContents(ctx context.Context, name, subscription string) error {
	infos, err := e.Queues(ctx, name)
	if err != nil {
		return err
	}
	for _, info := range infos {
		for _, s := range info.Subscriptions {
			if subscription == "" || s.Name == subscription {
				err = errors.Join(err, s.RefuseContents(name))
			}
		}
	}
	return err
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
