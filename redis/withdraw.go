package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Cancel implements [posthaste.MessageAdmin].
func (e *Engine) Cancel(ctx context.Context, id posthaste.MessageID) ([]posthaste.Withdrawal, error) {
	return e.withdraw(ctx, "cancel", id, 0)
}

// Reschedule implements [posthaste.MessageAdmin].
func (e *Engine) Reschedule(ctx context.Context, id posthaste.MessageID, at time.Time) ([]posthaste.Withdrawal, error) {
	if at.IsZero() {
		return nil, posthaste.Invalidf("send_at", "send_at must say when")
	}
	if err := posthaste.CheckTime("send_at", at); err != nil {
		return nil, err
	}
	return e.withdraw(ctx, "reschedule", id, max(0, micros(at)))
}

func (e *Engine) withdraw(ctx context.Context, action string, id posthaste.MessageID, due int64) ([]posthaste.Withdrawal, error) {
	before, err := e.Message(ctx, id)
	if err != nil {
		return nil, err
	}
	if q, err := e.registry.queue(ctx, before.Queue); err == nil && q.options.Ordered && action == "reschedule" {
		return nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "queue", Message: "a message of an ordered queue cannot be rescheduled: all later ones of its key would wait for it", Hint: "cancel it, and send another"}
	}
	what := "move"
	if action == "cancel" {
		what = action
	}
	inTime, requested, news := map[string]bool{}, map[string]bool{}, false
	err = e.each(ctx, withdrawScript, before.Queue, func(q *queue) arguments {
		return arguments{{"number", q.numberArg}, {"rules", q.rules}, {"action", what}, {"id", place(int64(id))}, {"due", due}}
	}, func(q *queue, reply any) error {
		inTime[q.subscription] = reply == int64(1)
		requested[q.subscription] = reply == int64(2) || reply == int64(3)
		news = news || reply == int64(1) || reply == int64(2)
		return nil
	})
	if news {
		err = errors.Join(err, e.record(ctx, record{Action: action, Queue: before.Queue, Message: id}))
	}
	if err != nil {
		return nil, writeError(err)
	}
	// A cancelled message may be forgotten at once. Read the states of the others again.
	after := before
	if action != "cancel" || slices.ContainsFunc(before.Subscriptions, func(s posthaste.MessageState) bool { return !inTime[s.Subscription] }) {
		if after, err = e.Message(ctx, id); posthaste.CodeOf(err) == posthaste.CodeNotFound && news {
			after, err = before, nil
		}
		if err != nil {
			return nil, err
		}
	}
	var all []posthaste.Withdrawal
	for _, s := range before.Subscriptions {
		w := posthaste.Withdrawal{Subscription: s.Subscription, InTime: inTime[s.Subscription], State: s.State}
		ended := false
		for _, now := range after.Subscriptions {
			if now.Subscription == s.Subscription {
				w.State = now.State
				ended = cancelledWhileRunning(now)
			}
		}
		if action == "cancel" {
			if w.InTime {
				w.State = posthaste.StateCancelled
			}
			w.InTime = w.InTime || w.State == posthaste.StateCancelled && !ended
			w.Requested = requested[s.Subscription] && w.State == posthaste.StateRunning
		}
		all = append(all, w)
	}
	return all, nil
}

// cancelledWhileRunning reports whether the end of a delivery made a message cancelled.
func cancelledWhileRunning(s posthaste.MessageState) bool {
	n := len(s.Attempts)
	return n > 0 && s.Attempts[n-1].Outcome == posthaste.OutcomeCancelled
}

// PurgeQueue implements [posthaste.QueueAdmin]. It moves all waiting messages aside in one
// step and then cancels them in further ones. If it is interrupted, the next purge continues.
func (e *Engine) PurgeQueue(ctx context.Context, name string) (purged []posthaste.Purged, err error) {
	var q *queue
	messages := map[string]int64{}
	for put := any(nil); ; {
		n, err := e.cancelAside(ctx, name)
		for s := range n {
			messages[s] += n[s]
		}
		if err != nil {
			if put == int64(1) { // the next claims cancel the others
				err = errors.Join(err, e.recordPurge(ctx, name, messages))
			}
			return nil, err
		}
		if put == int64(1) {
			break
		}
		if put, q, err = e.together(ctx, asideScript, name); err != nil {
			return nil, writeError(err)
		}
		if put != "fill" {
			continue
		}
		for _, s := range q.subs { // older messages that it gets are purged, too
			if err := e.fill(ctx, s.ref()); err != nil && posthaste.CodeOf(err) != posthaste.CodeNotFound {
				return nil, err
			}
		}
	}
	for _, s := range q.all() {
		purged = append(purged, posthaste.Purged{Subscription: s.subscription, Messages: messages[s.subscription]})
	}
	return purged, writeError(e.recordPurge(ctx, name, messages))
}

// recordPurge records a purge of so many messages of each subscription.
func (e *Engine) recordPurge(ctx context.Context, name string, messages map[string]int64) error {
	var sum int64
	for _, n := range messages {
		sum += n
	}
	return e.record(ctx, record{Action: "purge", Queue: name, Details: fmt.Appendf(nil, `{"messages":%d}`, sum)})
}
