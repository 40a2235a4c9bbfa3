package memory

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// holder returns the message that holds a unique key, or nil.
func (q *queue) holder(key string) *message {
	if m := q.unique[key]; m != nil && m.holdsKey(q.options.MaxAge) {
		return m
	}
	return nil
}

// holdsKey reports whether the last holder of a unique key still holds it. One that is too old has
// expired, before a claim finds that.
func (m *message) holdsKey(maxAge time.Duration) bool {
	switch m.state {
	case posthaste.StateScheduled, posthaste.StateReady:
		return maxAge == 0 || len(m.attempts) > 0 || time.Since(cmpTime(m.dueAt, m.createdAt)) < maxAge
	case posthaste.StateRunning, posthaste.StateRetrying:
		return m.Unique.Until != posthaste.UntilStarted
	case posthaste.StateDead:
		return m.Unique.Until == posthaste.UntilResolved
	}
	return false
}

// maxDelay returns how long after it was first sent a message is due at the latest; 0 means no bound.
func (m *message) maxDelay() time.Duration {
	if m.Unique == nil {
		return 0
	}
	return m.Unique.MaxDelay
}

// untouched reports whether a message waits and was not handed out.
func (m *message) untouched() bool {
	return m.state == posthaste.StateScheduled || m.state == posthaste.StateReady && len(m.attempts) == 0
}

// takeUnique gives the unique key of a dead letter back to it, unless another message holds it.
func (q *queue) takeUnique(m *message) bool {
	if m.uniqueKey == "" {
		return true
	}
	if holder := q.holder(m.uniqueKey); holder != nil && holder != m {
		return false
	}
	q.unique[m.uniqueKey] = m
	return true
}

// unsent is the result of sending a message whose unique key is held. It may replace the holder.
func (e *Engine) unsent(holder, m *message) posthaste.Sent {
	if m.Unique.Exists == posthaste.ReplaceExisting && holder.untouched() {
		due := m.dueAt
		if most := holder.createdAt.Add(m.maxDelay()); m.maxDelay() > 0 && due.After(most) {
			due = most
		}
		if n := e.withdraw(holder); n != nil {
			m.KeepAttemptOptions(&holder.Message)
			holder.Message, holder.body, holder.contentType = m.Message, m.body, m.contentType
			e.putAgain(holder, n, due)
			return posthaste.Sent{ID: holder.id, Replaced: true}
		}
	}
	return posthaste.Sent{ID: holder.id, Duplicate: true, State: e.info(holder).Subscriptions[0].State}
}

// putAgain appends a withdrawn entry again, due at a time or, if that is zero, now.
func (e *Engine) putAgain(m *message, n *entry, due time.Time) {
	n.dueAt, m.dueAt, n.asideAt = due, due, time.Time{}
	if m.state = posthaste.StateReady; due.After(e.now()) {
		m.state, n.since = posthaste.StateScheduled, due
	} else {
		n.dueAt, m.dueAt = time.Time{}, time.Time{}
	}
	e.append(e.queues[m.Queue], n, true)
}

// UpdateMessage implements [posthaste.MessageAdmin].
func (e *Engine) UpdateMessage(ctx context.Context, id posthaste.MessageID, update posthaste.MessageUpdate) (u posthaste.Updated, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.messages[id]
	if m == nil {
		return u, notFound("id", "message %d is unknown, or its space was reclaimed", id)
	}
	info := e.info(m)
	info.Payload = m.body
	if version := posthaste.VersionOf(&info); update.Version != "" && update.Version != version {
		return u, &posthaste.Error{Code: posthaste.CodeStale, Field: "version", Message: fmt.Sprintf("message %d has the version %s, not %s", id, version, update.Version)}
	}
	now := m.Message
	now.Payload, now.Codec, now.ContentType, now.Delay, now.SendAt = m.body, nil, m.contentType, 0, time.Time{}
	now, err = update.Apply(now)
	if err != nil {
		return u, err
	}
	made, err := e.check(now, e.now())
	if err != nil {
		return u, err
	}
	made.uniqueKey = m.uniqueKey
	details := posthaste.Action{Action: "update", Queue: m.Queue, MessageID: id}
	switch {
	case m.state == posthaste.StateDead:
		q := e.queues[m.Queue]
		if !q.takeUnique(m) {
			return u, &posthaste.Error{Code: posthaste.CodeUniqueConflict, Field: "unique", Message: fmt.Sprintf("message %d cannot be sent again, because another message holds its unique key", id)}
		}
		made.Headers = posthaste.ReplayHeaders(made.Headers, id)
		m.state = posthaste.StateDiscarded
		q.info.Dead--
		if made.uniqueKey != "" {
			q.unique[made.uniqueKey] = made
		}
		u.ID = e.store(made)
		details.Action, details.Details = "replay", json.RawMessage(fmt.Sprintf(`{"subscription":0,"edited":"%d"}`, u.ID))
	case m.untouched():
		n := e.withdraw(m)
		m.Message, m.body, m.contentType, n.asideAt = made.Message, made.body, made.contentType, time.Time{}
		e.append(e.queues[m.Queue], n, true)
		u.ID, made = id, m
	default:
		return u, &posthaste.Error{Code: posthaste.CodeConflict, Field: "message_id",
			Message: fmt.Sprintf("message %d was not changed: it is %s in subscription %q", id, info.Subscriptions[0].State, posthaste.DefaultSubscription)}
	}
	e.record(ctx, details)
	info = e.info(made)
	info.Payload = made.body
	u.Version = posthaste.VersionOf(&info)
	return u, ctx.Err()
}

// RunMessage implements [posthaste.MessageAdmin].
func (e *Engine) RunMessage(ctx context.Context, id posthaste.MessageID) ([]posthaste.RunResult, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.messages[id]
	if m == nil {
		return nil, notFound("id", "message %d is unknown, or its space was reclaimed", id)
	}
	q := e.queues[m.Queue]
	if m.dueAt.After(e.now()) && (m.state == posthaste.StateScheduled || m.state == posthaste.StateRetrying) {
		n := e.withdraw(m)
		state := m.state
		e.putAgain(m, n, time.Time{})
		if state == posthaste.StateRetrying {
			m.state = state
		}
		n.since = e.now()
		e.record(ctx, posthaste.Action{Action: "run", Queue: m.Queue, MessageID: id})
	}
	info, of := e.info(m), q.describe()
	r := posthaste.RunResult{Subscription: posthaste.DefaultSubscription, State: info.Subscriptions[0].State}
	switch m.state {
	case posthaste.StateScheduled, posthaste.StateReady, posthaste.StateRetrying:
		of.Subscriptions = []posthaste.SubscriptionInfo{{Name: r.Subscription, SetAside: e.setAside(q, e.now())}}
		r.Due, r.HeldBy = true, posthaste.HeldBy(&of, &info, r.Subscription)
	}
	return []posthaste.RunResult{r}, ctx.Err()
}
