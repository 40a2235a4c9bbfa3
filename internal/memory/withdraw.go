package memory

import (
	"container/heap"
	"context"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Subscribe implements [posthaste.QueueAdmin]. The engine in memory has only the
// subscription that every queue is created with.
func (e *Engine) Subscribe(_ context.Context, queue, subscription string, _ posthaste.SubscriptionOptions) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := e.subscribed(posthaste.QueueRef{Queue: queue, Subscription: subscription}); posthaste.CodeOf(err) == posthaste.CodeNotFound && e.queues[queue] != nil {
		return &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "subscription", Message: "the engine in memory has one subscription a queue"}
	} else {
		return err
	}
}

// Unsubscribe implements [posthaste.QueueAdmin].
func (e *Engine) Unsubscribe(_ context.Context, queue, subscription string, _ posthaste.DropOptions) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := e.subscribed(posthaste.QueueRef{Queue: queue, Subscription: subscription}); err != nil {
		return err
	}
	return &posthaste.Error{Code: posthaste.CodeConflict, Field: "subscription", Message: "a queue has at least one subscription"}
}

// withdraw removes the entry of a waiting message from its queue.
func (e *Engine) withdraw(m *message) *entry {
	q := e.queues[m.Queue]
	of := func(n *entry) bool { return n.m == m }
	for i := range q.fresh {
		if at := slices.IndexFunc(q.fresh[i], of); at >= 0 {
			n := q.fresh[i][at]
			q.fresh[i] = slices.Delete(slices.Clone(q.fresh[i]), at, at+1)
			q.info.Depth--
			return n
		}
	}
	if at := slices.IndexFunc(q.apart, of); at >= 0 {
		n := q.apart[at]
		q.apart = slices.Delete(q.apart, at, at+1)
		q.info.Depth--
		return n
	}
	if at := slices.IndexFunc(q.due, of); at >= 0 {
		q.info.Depth--
		return heap.Remove(&q.due, at).(*entry)
	}
	return nil
}

// Cancel implements [posthaste.MessageAdmin].
func (e *Engine) Cancel(ctx context.Context, id posthaste.MessageID) ([]posthaste.Withdrawal, error) {
	return e.change(ctx, "cancel", id, func(m *message, _ *entry) { m.state, m.dueAt = posthaste.StateCancelled, time.Time{} })
}

// Reschedule implements [posthaste.MessageAdmin].
func (e *Engine) Reschedule(ctx context.Context, id posthaste.MessageID, at time.Time) ([]posthaste.Withdrawal, error) {
	if at.IsZero() {
		return nil, posthaste.Invalidf("send_at", "send_at must be a time that comes")
	}
	if err := posthaste.CheckTime("send_at", at); err != nil {
		return nil, err
	}
	return e.change(ctx, "reschedule", id, func(m *message, n *entry) {
		if now := e.now(); at.Before(now) {
			at = now // otherwise it would count as waiting since then
		}
		n.dueAt, n.since, m.dueAt, n.asideAt = at, at, at, time.Time{}
		if n.attempt == 1 {
			m.state = posthaste.StateScheduled
		}
		e.append(e.queues[m.Queue], n, true)
	})
}

// change withdraws the waiting entry of a message and calls do with it.
func (e *Engine) change(ctx context.Context, action string, id posthaste.MessageID, do func(*message, *entry)) ([]posthaste.Withdrawal, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.messages[id]
	if m == nil {
		return nil, notFound("id", "message %d is unknown, or its space was reclaimed", id)
	}
	w := posthaste.Withdrawal{Subscription: posthaste.DefaultSubscription}
	news := false
	if n := e.withdraw(m); n != nil {
		do(m, n)
		w.InTime, news = true, true
	} else if action == "cancel" {
		w.Requested, news = e.cancelRunning(m)
	}
	if news {
		e.record(ctx, posthaste.Action{Action: action, Queue: m.Queue, MessageID: id})
	}
	now := e.info(m).Subscriptions[0]
	w.State = now.State
	w.InTime = w.InTime || action == "cancel" && w.State == posthaste.StateCancelled && !cancelledWhileRunning(now)
	return []posthaste.Withdrawal{w}, ctx.Err()
}

// cancelledWhileRunning reports whether the end of a delivery made a message cancelled.
func cancelledWhileRunning(s posthaste.MessageState) bool {
	n := len(s.Attempts)
	return n > 0 && s.Attempts[n-1].Outcome == posthaste.OutcomeCancelled
}

// cancelRunning cancels a message that is handed out, and reports whether it is and whether it
// was not cancelled before.
func (e *Engine) cancelRunning(m *message) (running, news bool) {
	for i, d := range slices.Backward(e.deliveries) {
		if d.m != m || d.settled {
			continue
		}
		if news = !d.cancelled; news {
			d.cancelled = true
			if a := d.attemptRow(); a != nil {
				a.CancelRequestedAt = e.now()
			}
			if w := e.workers[d.worker]; w != nil {
				w.cancelled = append(w.cancelled, posthaste.DeliveryID(i+1))
			}
		}
		return true, news
	}
	return false, false
}

// PurgeQueue implements [posthaste.QueueAdmin].
func (e *Engine) PurgeQueue(ctx context.Context, queue string) ([]posthaste.Purged, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	q, err := e.queue(queue)
	if err != nil {
		return nil, err
	}
	n := q.info.Depth
	for i := range q.fresh {
		for _, each := range q.fresh[i] {
			each.m.state = posthaste.StateCancelled
		}
		q.fresh[i] = nil
	}
	for _, each := range slices.Concat(q.due, q.apart) {
		each.m.state, each.m.dueAt = posthaste.StateCancelled, time.Time{}
	}
	q.due, q.apart, q.info.Depth = nil, nil, 0
	e.record(ctx, posthaste.Action{Action: "purge", Queue: queue})
	return []posthaste.Purged{{Subscription: posthaste.DefaultSubscription, Messages: n}}, ctx.Err()
}
