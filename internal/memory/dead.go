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
		return nil, posthaste.Invalidf("subscription", "subscription needs a queue")
	}
	if f.Queue != "" {
		if _, err := e.subscribed(posthaste.QueueRef{Queue: f.Queue, Subscription: f.Subscription}); err != nil {
			return nil, err
		}
	}
	return e.newest(f.Before, f.Limit, func(m *message) bool { return m.deadMatches(f) })
}

// DeadLetters implements [posthaste.MessageAdmin].
func (e *Engine) DeadLetters(ctx context.Context, f posthaste.DeadLetterFilter) (posthaste.Page[posthaste.DeadLetter], error) {
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
	return posthaste.NewPage(dead, cmp.Or(f.Limit, 100), 0, func(d *posthaste.DeadLetter) posthaste.MessageID { return d.ID }), firstError(err, ctx.Err())
}

// replay and discard are the actions on a dead letter.
func (e *Engine) replay(q *queue, m *message) {
	last := m.attempts[len(m.attempts)-1].Attempt
	m.state = posthaste.StateReady
	e.append(q, &entry{m: m, attempt: last + 1, since: e.now(), story: slices.Clone(m.attempts)}, true)
}

func (e *Engine) discard(_ *queue, m *message) { m.state = posthaste.StateDiscarded }

// Replay implements [posthaste.MessageAdmin].
func (e *Engine) Replay(ctx context.Context, f posthaste.DeadLetterFilter) (posthaste.Page[posthaste.MessageID], error) {
	return e.bury(ctx, "replay", f, e.replay)
}

// Discard implements [posthaste.MessageAdmin].
func (e *Engine) Discard(ctx context.Context, f posthaste.DeadLetterFilter) (posthaste.Page[posthaste.MessageID], error) {
	return e.bury(ctx, "discard", f, e.discard)
}

// bury removes dead letters from the list, runs act with each and records the actions.
func (e *Engine) bury(ctx context.Context, action string, f posthaste.DeadLetterFilter, act func(*queue, *message)) (page posthaste.Page[posthaste.MessageID], err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := f.CheckChoice(); err != nil {
		return page, err
	}
	f.Limit = cmp.Or(f.Limit, 100)
	found, err := e.chosen(f)
	for _, m := range found {
		if action == "replay" && !m.erasedAt.IsZero() {
			continue
		}
		q := e.queues[m.Queue]
		if action == "replay" && !q.takeUnique(m) {
			page.Conflicts = append(page.Conflicts, m.id)
			continue
		}
		q.info.Dead--
		act(q, m)
		e.record(ctx, posthaste.Action{Action: action, Queue: m.Queue, MessageID: m.id, Details: json.RawMessage(`{"subscription":0}`)})
		page.Items = append(page.Items, m.id)
	}
	switch {
	case err == nil && len(f.IDs) > 0 && len(page.Items) == 0 && len(page.Conflicts) > 0:
		err = &posthaste.Error{Code: posthaste.CodeUniqueConflict, Field: "unique", Hint: "wait until that one has ended, or discard the dead letter",
			Message: fmt.Sprintf("message %d stays a dead letter, because another message holds its unique key", page.Conflicts[0])}
	case err == nil && len(f.IDs) > 0 && len(page.Items) == 0:
		err = &posthaste.Error{Code: posthaste.CodeNotFound, Field: "message_ids", Hint: "DeadLetters lists them",
			Message: fmt.Sprintf("no dead letter to act on: message %d", f.IDs[0])}
	case len(f.IDs) == 0 && len(found) == f.Limit:
		page.Next = found[len(found)-1].id
	}
	slices.Sort(page.Items)
	return page, firstError(err, ctx.Err())
}

// chosen finds the dead letters of a filter, or all of its IDs.
func (e *Engine) chosen(f posthaste.DeadLetterFilter) (found []*message, err error) {
	if len(f.IDs) == 0 {
		return e.dead(f)
	}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(f.IDs))) {
		if m := e.messages[id]; m != nil && m.state == posthaste.StateDead {
			found = append(found, m)
		}
	}
	return found, nil
}

// record records an action of the context's actor. e.mu is held.
func (e *Engine) record(ctx context.Context, a posthaste.Action) {
	a.ID, a.At, a.By = int64(len(e.actions)+1), e.now(), actor(ctx)
	e.actions = append(e.actions, a)
}

func actor(ctx context.Context) string { return cmp.Or(posthaste.ActorOf(ctx), "memory") }

// Erase implements [posthaste.MessageAdmin].
func (e *Engine) Erase(ctx context.Context, term string, before posthaste.MessageID) (page posthaste.Page[posthaste.Erasure], err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if term == "" {
		return page, posthaste.Invalidf("term", "term must not be empty")
	}
	of, err := e.newest(before, 1000, func(m *message) bool { return slices.Contains(m.Terms, term) })
	for _, m := range of {
		pending := !slices.Contains([]posthaste.State{posthaste.StateDone, posthaste.StateHandedOut, posthaste.StateDead, posthaste.StateDiscarded, posthaste.StateCancelled, posthaste.StateExpired}, m.state)
		page.Items = append(page.Items, posthaste.Erasure{MessageID: m.id, Queue: m.Queue, Pending: pending})
		if !pending {
			m.erase(e.now())
			if q := e.queues[m.Queue]; q != nil && q.unique[m.uniqueKey] == m {
				delete(q.unique, m.uniqueKey)
			}
			m.uniqueKey = ""
			e.figures.erase(m.id)
			e.record(ctx, posthaste.Action{Action: "erase", Queue: m.Queue, MessageID: m.id, Details: json.RawMessage(fmt.Sprintf(`{"term_sha256":"%x"}`, sha256.Sum256([]byte(term))))})
		}
	}
	if len(of) == 1000 {
		page.Next = of[len(of)-1].id
	}
	return page, firstError(err, ctx.Err())
}

// erase keeps only the fact and the times.
func (m *message) erase(now time.Time) {
	m.Key, m.Reference, m.Headers, m.Terms, m.body, m.erasedAt = "", "", nil, nil, nil, now
	m.attempts = slices.Clone(m.attempts)
	for i := range m.attempts {
		a := &m.attempts[i]
		a.Receipt, a.Checkpoint, a.ProgressText, a.Log = nil, nil, "", ""
		if m.attempts[i].Error != "" {
			m.attempts[i].Error = "erased"
		}
	}
}

// Actions implements [posthaste.Observer].
func (e *Engine) Actions(ctx context.Context, f posthaste.ActionFilter) (all []posthaste.Action, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if f.Limit < 0 || f.Limit > 1000 {
		return nil, posthaste.Invalidf("limit", "a call lists 1 to 1000 actions, not %d", f.Limit)
	}
	for _, a := range slices.Backward(e.actions) {
		if (f.Before == 0 || a.ID < f.Before) && (f.Queue == "" || f.Queue == a.Queue) && (f.MessageID == 0 || f.MessageID == a.MessageID) && len(all) < cmp.Or(f.Limit, 100) {
			all = append(all, a)
		}
	}
	return all, ctx.Err()
}
