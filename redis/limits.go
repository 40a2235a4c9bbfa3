package redis

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

// UpdateQueue implements [posthaste.QueueAdmin]. Messages in flight count toward new limits of
// the queue, and not toward those of a key.
//
// The registry decides which options a queue has, and counts their revisions. The queue's slot
// has the revision that its scripts follow: a caller that knows another one does nothing, and
// reads the registry. So no call that begins after the change follows the old options, whatever
// a process has in memory. If this process dies in between, the first call of any process that
// has read the registry since passes the change on; upkeep reads it in each round.
func (e *Engine) UpdateQueue(ctx context.Context, name string, update posthaste.QueueUpdate) error {
	if err := posthaste.CheckName("queue", name); err != nil {
		return err
	}
	for range 5 {
		all, err := e.registry.read(ctx)
		if err != nil {
			return err
		}
		q := all[name]
		if q == nil {
			return noQueue(name)
		}
		is, changes, err := update.Apply(name, q.options.QueueOptions)
		if err != nil {
			return err
		}
		reply := any("ok")
		if len(changes) > 0 {
			reply, err = e.revise(ctx, q, is, changes)
		}
		if err == nil && reply == "ok" {
			if _, err = e.registry.read(ctx); err == nil {
				_, _, err = e.tryQueue(ctx, name, func(q *queue) (any, error) { return e.renew(ctx, q) })
			}
		}
		if err != nil || reply == "ok" {
			return writeError(err)
		}
	}
	return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "queue " + quote.Name(name) + " is being changed by other processes", Hint: "try again"}
}

// revise changes the options of a queue in the registry and records that, unless another
// process has changed them: then it replies "changed".
func (e *Engine) revise(ctx context.Context, q *queue, is posthaste.QueueOptions, changes []posthaste.OptionChange) (any, error) {
	next, err := json.Marshal(stored{QueueOptions: is, Revision: q.options.Revision + 1, Stopped: q.options.Stopped || q.options.StopOnDead})
	if err != nil {
		return nil, err
	}
	action, err := json.Marshal(record{By: cmp.Or(posthaste.ActorOf(ctx), "redis"), Action: "update", Queue: q.name, Details: posthaste.ChangeDetails(changes)})
	if err != nil {
		return nil, err
	}
	return reviseScript.run(ctx, e.client, []string{e.keys.queues(), e.keys.actions()},
		arguments{{"name", q.name}, {"was", q.value}, {"is", fmt.Sprintf("%d %d %s", q.number, q.created, next)}, {"action", action}})
}

// renew passes the options of a queue on to its slot, if they were ever changed.
func (e *Engine) renew(ctx context.Context, q *queue) (any, error) {
	if q.options.Revision == 0 {
		return "ok", nil
	}
	return renewScript.run(ctx, e.client, q.allKeys(), arguments{{"number", q.numberArg}, {"rules", q.rules}, {"limits", q.limits}})
}

func (e *Engine) pauseKey(ctx context.Context, name, key, action, paused string) error {
	q, err := e.registry.queue(ctx, name)
	if err != nil {
		return err
	}
	if key == "" {
		return posthaste.Invalidf("key", "the key must not be empty")
	}
	if err := (&posthaste.Message{Queue: name, Key: key}).Check(); err != nil {
		return err
	}
	if q.looks == 0 {
		return &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "key", Message: "queue " + quote.Name(name) + " does not support pausing keys",
			Hint: "pause the queue, or create one that is ordered, fair or has a limit per key"}
	}
	reply, _, err := e.together(ctx, keyScript, name, arg{"key", key}, arg{"pause", paused})
	if err != nil || reply != int64(1) {
		return writeError(err)
	}
	details, err := json.Marshal(map[string]string{"key": key})
	if err != nil {
		return err
	}
	return writeError(e.record(ctx, record{Action: action, Queue: name, Details: details}))
}
