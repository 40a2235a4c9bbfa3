package redis

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/posthaste-mq/posthaste"
)

func matches(d *posthaste.DeadLetter, f *posthaste.DeadLetterFilter) bool {
	for _, x := range [...]struct{ want, is string }{{f.Kind, d.Kind}, {f.Key, d.Key}, {f.Reference, d.Reference}} {
		if x.want != "" && x.want != x.is {
			return false
		}
	}
	return (f.Term == "" || slices.Contains(d.Terms, f.Term)) && (f.Before == 0 || d.ID < f.Before) &&
		(f.Error == "" || strings.Contains(strings.ToLower(d.Error), strings.ToLower(f.Error))) &&
		!d.DiedAt.Before(f.DiedFrom) && (f.DiedBefore.IsZero() || d.DiedAt.Before(f.DiedBefore))
}

// deadLetter is a message as a dead letter, if it is one.
func (t *told) deadLetter() (d posthaste.DeadLetter, ok bool) {
	s := t.Subscriptions[0]
	if s.State != posthaste.StateDead || len(s.Attempts) == 0 {
		return d, false
	}
	last := s.Attempts[len(s.Attempts)-1]
	return posthaste.DeadLetter{ID: t.ID, Queue: t.Queue, Subscription: s.Subscription, Key: t.Key, Kind: t.Kind, Headers: t.Headers, Reference: t.Reference,
		Terms: t.Terms, ContentType: t.ContentType, Payload: t.Payload, CreatedAt: t.CreatedAt, ErasedAt: t.ErasedAt, DiedAt: last.EndedAt, Error: last.Error, Attempts: s.Attempts}, true
}

// DeadLetters implements [posthaste.Admin]. A search looks at up to 10,000 of each queue.
func (e *Engine) DeadLetters(ctx context.Context, f posthaste.DeadLetterFilter) (found []posthaste.DeadLetter, cutAt posthaste.MessageID, err error) {
	limit, err := limited(f.Limit)
	if err != nil {
		return nil, 0, err
	}
	if f.Subscription != "" {
		if f.Queue == "" {
			return nil, 0, posthaste.Invalidf("subscription", "a subscription is one of a queue, and no queue is given")
		}
		if err := subscribed(posthaste.QueueRef{Queue: f.Queue, Subscription: f.Subscription}); err != nil {
			return nil, 0, err
		}
	}
	var byID map[string][]string
	if f.IDs != nil {
		if byID, err = e.places(ctx, f.IDs); err != nil {
			return nil, 0, err
		}
	}
	all, cutAt, err := e.search(ctx, f.Queue, limit, f.Before, func(name string) pages {
		switch {
		case byID != nil:
			return func(context.Context, int64, int) ([]string, error) {
				some := byID[name]
				delete(byID, name) // there is one page
				slices.Reverse(some)
				return some, nil
			}
		case f.Reference != "" || f.Term != "":
			return e.worded(name, f.Reference, f.Term)
		}
		return e.listed(name, "d")
	}, func(t *told) bool {
		d, ok := t.deadLetter()
		return ok && matches(&d, &f)
	})
	for _, t := range all {
		d, _ := t.deadLetter()
		found = append(found, d)
	}
	return found, cutAt, err
}

// Replay implements [posthaste.Admin].
func (e *Engine) Replay(ctx context.Context, by string, ids ...posthaste.MessageID) ([]posthaste.MessageID, error) {
	return e.bury(ctx, by, "replay", ids)
}

// Discard implements [posthaste.Admin].
func (e *Engine) Discard(ctx context.Context, by string, ids ...posthaste.MessageID) ([]posthaste.MessageID, error) {
	return e.bury(ctx, by, "discard", ids)
}

// buryMost bounds one script, as claimMost.
const buryMost = 200

func (e *Engine) bury(ctx context.Context, by, action string, ids []posthaste.MessageID) (were []posthaste.MessageID, err error) {
	byName, err := e.places(ctx, ids)
	if err != nil {
		return nil, err
	}
	for name, all := range byName {
		for places := range slices.Chunk(all, buryMost) {
			reply, q, err := e.on(ctx, buryScript, name, func(q *queue) []any {
				args := []any{q.numberArg, q.rules, action}
				for _, p := range places {
					args = append(args, p)
				}
				return args
			})
			if err != nil {
				return were, writeError(err)
			}
			buried, err := list(action, reply, 0)
			if err != nil {
				return were, err
			}
			var actions []record
			for _, p := range buried {
				n, err := id(str(p), q.number)
				if err != nil {
					return were, err
				}
				were = append(were, posthaste.MessageID(n))
				actions = append(actions, record{By: by, Action: action, Queue: name, Message: posthaste.MessageID(n),
					Details: json.RawMessage(`{"subscription":` + strconv.Itoa(0) + `}`)})
			}
			if err := e.record(ctx, actions...); err != nil {
				return were, writeError(err)
			}
		}
	}
	slices.Sort(were)
	return were, nil
}

// ReplayMatching implements [posthaste.Admin]. It is one transaction per 200 of a queue.
func (e *Engine) ReplayMatching(ctx context.Context, by string, f posthaste.DeadLetterFilter) ([]posthaste.MessageID, posthaste.MessageID, error) {
	return e.buryMatching(ctx, by, "replay", f)
}

// DiscardMatching implements [posthaste.Admin], as ReplayMatching.
func (e *Engine) DiscardMatching(ctx context.Context, by string, f posthaste.DeadLetterFilter) ([]posthaste.MessageID, posthaste.MessageID, error) {
	return e.buryMatching(ctx, by, "discard", f)
}

func (e *Engine) buryMatching(ctx context.Context, by, action string, f posthaste.DeadLetterFilter) (were []posthaste.MessageID, next posthaste.MessageID, err error) {
	if f.IDs != nil {
		return nil, 0, posthaste.Invalidf("ids", "ids and a filter exclude each other")
	}
	limit, err := limited(f.Limit)
	if err != nil {
		return nil, 0, err
	}
	found, cutAt, err := e.DeadLetters(ctx, f)
	if err != nil {
		return nil, 0, err
	}
	ids := make([]posthaste.MessageID, len(found))
	for i := range found {
		ids[i] = found[i].ID
	}
	if next = cutAt; len(found) == limit {
		next = ids[len(ids)-1]
	}
	were, err = e.bury(ctx, by, action, ids)
	return were, next, err
}
