package memory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// deadMatches reports whether a message is a dead letter that matches f.
func (m *message) deadMatches(f posthaste.DeadLetterFilter) bool {
	if m.state != posthaste.StateDead {
		return false
	}
	for _, x := range []struct{ want, is string }{{f.Queue, m.Queue}, {f.Kind, m.Kind}, {f.Key, m.Key}, {f.Reference, m.Reference}} {
		if x.want != "" && x.want != x.is {
			return false
		}
	}
	return (f.Term == "" || slices.Contains(m.Terms, f.Term)) && (f.IDs == nil || slices.Contains(f.IDs, m.id)) &&
		f.MatchesError(m.attempts[len(m.attempts)-1].Error) &&
		!m.diedAt.Before(f.DiedFrom) && (f.DiedBefore.IsZero() || m.diedAt.Before(f.DiedBefore))
}

// dead finds dead letters, newest first.
func (e *Engine) dead(f posthaste.DeadLetterFilter) ([]*message, error) {
	if f.Subscription != "" && f.Queue == "" {
		return nil, posthaste.Invalidf("subscription", "a subscription is one of a queue, and no queue is given")
	}
	if f.Queue != "" {
		if _, err := e.subscribed(posthaste.QueueRef{Queue: f.Queue, Subscription: f.Subscription}); err != nil {
			return nil, err
		}
	}
	return e.newest(f.Before, f.Limit, func(m *message) bool { return m.deadMatches(f) })
}

// DeadLetters implements [posthaste.Admin].
func (e *Engine) DeadLetters(ctx context.Context, f posthaste.DeadLetterFilter) ([]posthaste.DeadLetter, posthaste.MessageID, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	found, err := e.dead(f)
	var dead []posthaste.DeadLetter
	for _, m := range found {
		dead = append(dead, posthaste.DeadLetter{ID: m.id, Queue: m.Queue, Subscription: posthaste.DefaultSubscription,
			Key: m.Key, Kind: m.Kind, Headers: m.Headers, Reference: m.Reference, Terms: m.Terms, ContentType: m.contentType,
			Payload: m.body, CreatedAt: m.createdAt, DiedAt: m.diedAt, Error: m.attempts[len(m.attempts)-1].Error,
			Attempts: slices.Clone(m.attempts), ErasedAt: m.erasedAt})
	}
	return dead, 0, firstError(err, ctx.Err())
}

// replay and discard are the actions on a dead letter.
func (e *Engine) replay(q *queue, m *message) {
	last := m.attempts[len(m.attempts)-1].Attempt
	m.state = posthaste.StateReady
	e.append(q, &entry{m: m, attempt: last + 1, story: slices.Clone(m.attempts)}, true)
}

func (e *Engine) discard(_ *queue, m *message) { m.state = posthaste.StateDiscarded }

// Replay implements [posthaste.Admin].
func (e *Engine) Replay(ctx context.Context, by string, ids ...posthaste.MessageID) ([]posthaste.MessageID, error) {
	return e.buryThese(ctx, by, "replay", ids, e.replay)
}

// Discard implements [posthaste.Admin].
func (e *Engine) Discard(ctx context.Context, by string, ids ...posthaste.MessageID) ([]posthaste.MessageID, error) {
	return e.buryThese(ctx, by, "discard", ids, e.discard)
}

// ReplayMatching implements [posthaste.Admin].
func (e *Engine) ReplayMatching(ctx context.Context, by string, f posthaste.DeadLetterFilter) ([]posthaste.MessageID, posthaste.MessageID, error) {
	return e.buryMatching(ctx, by, "replay", f, e.replay)
}

// DiscardMatching implements [posthaste.Admin].
func (e *Engine) DiscardMatching(ctx context.Context, by string, f posthaste.DeadLetterFilter) ([]posthaste.MessageID, posthaste.MessageID, error) {
	return e.buryMatching(ctx, by, "discard", f, e.discard)
}

// bury removes a dead letter from the list, runs act with it and records the action.
func (e *Engine) bury(by, action string, m *message, act func(*queue, *message)) {
	q := e.queues[m.Queue]
	q.info.Dead--
	act(q, m)
	e.record(posthaste.Action{By: by, Action: action, Queue: m.Queue, MessageID: m.id, Details: json.RawMessage(`{"subscription":0}`)})
}

// record records an operator's action.
func (e *Engine) record(a posthaste.Action) {
	a.ID, a.At, a.By = int64(len(e.actions)+1), time.Now(), cmp.Or(a.By, "memory")
	e.actions = append(e.actions, a)
}

func (e *Engine) buryThese(ctx context.Context, by, action string, ids []posthaste.MessageID, act func(*queue, *message)) (were []posthaste.MessageID, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range ids {
		if m := e.messages[id]; m != nil && m.state == posthaste.StateDead && (action == "discard" || m.erasedAt.IsZero()) {
			e.bury(by, action, m, act)
			were = append(were, id)
		}
	}
	if len(ids) > 0 && len(were) == 0 {
		return nil, &posthaste.Error{Code: posthaste.NotFound, Field: "message_ids", Hint: "DeadLetters lists them",
			Message: fmt.Sprintf("no dead letter to act on: message %d", ids[0])}
	}
	return were, ctx.Err()
}

func (e *Engine) buryMatching(ctx context.Context, by, action string, f posthaste.DeadLetterFilter, act func(*queue, *message)) (were []posthaste.MessageID, next posthaste.MessageID, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := f.CheckChoice(); err != nil {
		return nil, 0, err
	}
	found, err := e.dead(f)
	for _, m := range found {
		if action == "replay" && !m.erasedAt.IsZero() {
			continue
		}
		e.bury(by, action, m, act)
		were = append(were, m.id)
	}
	if len(found) == cmp.Or(f.Limit, 100) {
		next = found[len(found)-1].id
	}
	slices.Sort(were)
	return were, next, firstError(err, ctx.Err())
}

// Erase implements [posthaste.Admin].
func (e *Engine) Erase(ctx context.Context, by, term string, before posthaste.MessageID) (found []posthaste.Erasure, next posthaste.MessageID, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if term == "" {
		return nil, 0, posthaste.Invalidf("term", "term must say whose messages are to be erased")
	}
	of, err := e.newest(before, 1000, func(m *message) bool { return slices.Contains(m.Terms, term) })
	for _, m := range of {
		pending := !slices.Contains([]posthaste.State{posthaste.StateDone, posthaste.StateHandedOut, posthaste.StateDead, posthaste.StateDiscarded, posthaste.StateCancelled}, m.state)
		found = append(found, posthaste.Erasure{MessageID: m.id, Queue: m.Queue, Pending: pending})
		if !pending {
			m.erase()
			e.actions = append(e.actions, posthaste.Action{ID: int64(len(e.actions) + 1), At: m.erasedAt, By: cmp.Or(by, "memory"), Action: "erase",
				Queue: m.Queue, MessageID: m.id, Details: json.RawMessage(fmt.Sprintf(`{"term_sha256":"%x"}`, sha256.Sum256([]byte(term))))})
		}
	}
	if len(of) == 1000 {
		next = of[len(of)-1].id
	}
	return found, next, firstError(err, ctx.Err())
}

// erase keeps only the fact and the times.
func (m *message) erase() {
	m.Key, m.Reference, m.Headers, m.Terms, m.body, m.erasedAt = "", "", nil, nil, nil, time.Now()
	m.attempts = slices.Clone(m.attempts)
	for i := range m.attempts {
		m.attempts[i].Receipt = nil
		if m.attempts[i].Error != "" {
			m.attempts[i].Error = "erased"
		}
	}
}

// Actions implements [posthaste.Admin].
func (e *Engine) Actions(ctx context.Context, f posthaste.ActionFilter) (all []posthaste.Action, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if f.Limit < 0 || f.Limit > 1000 {
		return nil, posthaste.Invalidf("limit", "at most 1 to 1000 actions can be listed at a time, and %d are wanted", f.Limit)
	}
	for _, a := range slices.Backward(e.actions) {
		if (f.Before == 0 || a.ID < f.Before) && (f.Queue == "" || f.Queue == a.Queue) && (f.MessageID == 0 || f.MessageID == a.MessageID) && len(all) < cmp.Or(f.Limit, 100) {
			all = append(all, a)
		}
	}
	return all, ctx.Err()
}
