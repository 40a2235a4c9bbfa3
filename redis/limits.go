package redis

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"

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
	return e.change(ctx, name, 0, func(q *queue) (stored, bool, posthaste.Action, error) {
		is := q.options
		next, changes, err := update.Apply(name, q.options.QueueOptions)
		is.QueueOptions = next
		return is, len(changes) > 0, posthaste.Action{Action: "update", Details: posthaste.ChangeDetails(changes)}, err
	})
}

// change changes the settings that the registry has of a queue. The function to returns the next
// settings, whether they differ, and the record of the change. before is the time in µs until which
// they may be changed, or 0.
func (e *Engine) change(ctx context.Context, name string, before int64, to func(*queue) (stored, bool, posthaste.Action, error)) error {
	for range 5 {
		all, err := e.registry.read(ctx)
		if err != nil {
			return err
		}
		q := all[name]
		if q == nil {
			return noQueue(name)
		}
		is, changed, action, err := to(q)
		if err != nil {
			return err
		}
		reply := any("ok")
		if changed {
			reply, err = e.revise(ctx, q, is, action, before)
		}
		if err == nil && reply == "late" {
			return busy()
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
func (e *Engine) revise(ctx context.Context, q *queue, is stored, what posthaste.Action, before int64) (any, error) {
	is.Revision++
	is.Stopped = q.options.Stopped || q.options.StopOnDead
	next, err := json.Marshal(is)
	if err != nil {
		return nil, err
	}
	action, err := json.Marshal(record{By: cmp.Or(posthaste.ActorOf(ctx), "redis"), Action: what.Action, Queue: q.name, Details: what.Details})
	if err != nil {
		return nil, err
	}
	until := ""
	if before != 0 {
		until = strconv.FormatInt(before, 10)
	}
	return reviseScript.run(ctx, e.client, []string{e.keys.queues(), e.keys.actions()},
		arguments{{"name", q.name}, {"was", q.value}, {"is", fmt.Sprintf("%d %d %s", q.number, q.created, next)}, {"action", action}, {"before", until}})
}

// renew passes the options of a queue on to its slot, if they were ever changed.
func (e *Engine) renew(ctx context.Context, q *queue) (any, error) {
	if q.options.Revision == 0 {
		return "ok", nil
	}
	return renewScript.run(ctx, e.client, q.allKeys(), arguments{{"number", q.numberArg}, {"rules", q.rules}, {"limits", q.limits}})
}
