package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Cancel implements [posthaste.Withdrawing].
func (e *Engine) Cancel(ctx context.Context, by string, id posthaste.MessageID) ([]posthaste.Withdrawal, error) {
	return e.withdraw(ctx, by, "cancel", id, 0)
}

// Reschedule implements [posthaste.Withdrawing].
func (e *Engine) Reschedule(ctx context.Context, by string, id posthaste.MessageID, at time.Time) ([]posthaste.Withdrawal, error) {
	if at.IsZero() {
		return nil, posthaste.Invalidf("send_at", "send_at must say when")
	}
	return e.withdraw(ctx, by, "reschedule", id, max(0, micros(at)))
}

func (e *Engine) withdraw(ctx context.Context, by, action string, id posthaste.MessageID, due int64) ([]posthaste.Withdrawal, error) {
	before, err := e.Message(ctx, id)
	if err != nil {
		return nil, err
	}
	if q, err := e.queue(ctx, before.Queue); err == nil && q.options.Ordered && action != "cancel" {
		return nil, &posthaste.Error{Code: posthaste.Invalid, Field: "queue", Message: "a message of an ordered queue cannot be rescheduled: all later ones of its key would wait for it", Hint: "cancel it, and send another"}
	}
	reply, _, err := e.on(ctx, withdrawScript, before.Queue, func(q *queue) []any {
		what := "move"
		if action == "cancel" {
			what = action
		}
		return []any{q.numberArg, q.rules, what, place(int64(id)), due}
	})
	if err != nil {
		return nil, writeError(err)
	}
	inTime := reply == int64(1)
	if inTime {
		if err := e.record(ctx, record{By: by, Action: action, Queue: before.Queue, Message: id}); err != nil {
			return nil, writeError(err)
		}
	}
	w := posthaste.Withdrawal{Subscription: posthaste.DefaultSubscription, InTime: inTime, State: posthaste.StateCancelled}
	if !inTime || action != "cancel" {
		after, err := e.Message(ctx, id)
		if err != nil {
			return nil, err
		}
		w.State = after.Subscriptions[0].State
		w.InTime = inTime || action == "cancel" && w.State == posthaste.StateCancelled
	}
	return []posthaste.Withdrawal{w}, nil
}

// QueuePurge implements [posthaste.Withdrawing]. What waits is put aside at one
// moment and then cancelled bit by bit; should that end before it is done, the next
// purge goes on with it.
func (e *Engine) QueuePurge(ctx context.Context, by, name string) ([]posthaste.Purged, error) {
	var purged int64
	for put := false; ; {
		begin := "1"
		if put {
			begin = ""
		}
		reply, _, err := e.on(ctx, purgeScript, name, func(q *queue) []any { return []any{q.numberArg, q.rules, begin, claimMost} })
		if err != nil {
			return nil, writeError(err)
		}
		all, err := list("purge", reply, 3)
		if err != nil {
			return nil, err
		}
		n, _ := all[1].(int64)
		purged += n
		put = put || all[0] == int64(1)
		if put && all[2] == int64(0) {
			break
		}
	}
	err := e.record(ctx, record{By: by, Action: "purge", Queue: name, Details: fmt.Appendf(nil, `{"messages":%d}`, purged)})
	return []posthaste.Purged{{Subscription: posthaste.DefaultSubscription, Messages: purged}}, writeError(err)
}
