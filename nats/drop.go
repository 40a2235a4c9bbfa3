package nats

import (
	"context"
	"errors"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste"
)

// DropQueue implements [posthaste.QueueAdmin].
func (e *Engine) DropQueue(ctx context.Context, name string, o posthaste.DropOptions) error {
	if o.IfEmpty {
		if err := e.refuseContents(ctx, name, ""); err != nil {
			return err
		}
	}
	q, err := e.changeQueue(ctx, name, func(q *queue) (bool, error) {
		q.Ready, q.Dropping = false, true
		return true, nil
	})
	if err != nil {
		return err
	}
	if err := e.record(ctx, "drop", name, 0, nil); err != nil {
		return err
	}
	return e.finishDrop(ctx, q)
}

// finishDrop removes the stream, the schedules, the number and the entry of a queue. A process that is
// killed here leaves the entry, which hides the queue. The next creation of a queue with its name calls
// finishDrop again.
func (e *Engine) finishDrop(ctx context.Context, q *queue) error {
	if err := e.js.DeleteStream(ctx, q.stream); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return e.readError(err)
	}
	if err := e.dropSchedulesOf(ctx, q.Name); err != nil {
		return err
	}
	if err := e.dropNumber(ctx, q); err != nil {
		return e.readError(err)
	}
	err := e.kv.Delete(ctx, queueKey+subjectToken(q.Name), jetstream.LastRevision(q.revision))
	if conflicts(err) {
		return nil // another process has removed it
	}
	e.queues.learn(q.Name, q.revision+1, nil)
	return e.readError(err)
}

// dropNumber frees the number of a queue while its entry still exists. Another queue may have the number
// already, if a process was killed after it had freed the number.
func (e *Engine) dropNumber(ctx context.Context, q *queue) error {
	key := "number." + strconv.Itoa(q.No)
	number, err := e.kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) || err == nil && string(number.Value()) != q.Name {
		return nil
	}
	if err != nil {
		return err
	}
	entry, err := e.kv.Get(ctx, queueKey+subjectToken(q.Name))
	if errors.Is(err, jetstream.ErrKeyNotFound) || err == nil && entry.Revision() != q.revision {
		return nil // another process has dropped the queue
	}
	if err != nil {
		return err
	}
	if err := e.kv.Delete(ctx, key, jetstream.LastRevision(number.Revision())); !conflicts(err) {
		return err
	}
	return nil
}

// refuseContents returns an error if a subscription of a queue is not empty, or any of them if
// subscription is "".
func (e *Engine) refuseContents(ctx context.Context, name, subscription string) error {
	q, err := e.freshQueue(ctx, name)
	if err != nil {
		return err
	}
	info, err := e.infoOf(ctx, q)
	if err != nil {
		return err
	}
	for _, s := range info.Subscriptions {
		if subscription == "" || s.Name == subscription {
			err = errors.Join(err, s.RefuseContents(name))
		}
	}
	return err
}
