package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/posthaste-mq/posthaste"
)

func matches(d *posthaste.DeadLetter, f *posthaste.DeadLetterFilter) bool {
	for _, x := range [...]struct{ want, is string }{{f.Kind, d.Kind}, {f.Key, d.Key}, {f.Reference, d.Reference}} {
		if x.want != "" && x.want != x.is {
			return false
		}
	}
	return (f.Term == "" || slices.Contains(d.Terms, f.Term)) && (f.Before == 0 || d.ID < f.Before) &&
		(f.Error == "" || f.MatchesError(d.Error)) &&
		!d.DiedAt.Before(f.DiedFrom) && (f.DiedBefore.IsZero() || d.DiedAt.Before(f.DiedBefore))
}

// deadLetters returns the matching dead letters of a message, one per subscription.
func (t *told) deadLetters(f *posthaste.DeadLetterFilter) (all []posthaste.DeadLetter) {
	for _, s := range t.Subscriptions {
		if s.State != posthaste.StateDead || len(s.Attempts) == 0 || f.Subscription != "" && f.Subscription != s.Subscription {
			continue
		}
		if d := t.deadLetter(s); matches(&d, f) {
			all = append(all, d)
		}
	}
	return all
}

func (t *told) deadLetter(s posthaste.MessageState) posthaste.DeadLetter {
	last := s.Attempts[len(s.Attempts)-1]
	return posthaste.DeadLetter{ID: t.ID, Queue: t.Queue, Subscription: s.Subscription, Key: t.Key, Kind: t.Kind, Headers: t.Headers, Reference: t.Reference,
		Terms: t.Terms, ContentType: t.ContentType, Payload: t.Payload, CreatedAt: t.CreatedAt, ErasedAt: t.ErasedAt, DiedAt: last.EndedAt, Error: last.Error, Attempts: s.Attempts}
}

// DeadLetters implements [posthaste.Admin]. It looks at up to 10,000 dead letters of each
// queue. If one message has more dead letters than the limit, it returns them all.
func (e *Engine) DeadLetters(ctx context.Context, f posthaste.DeadLetterFilter) (found []posthaste.DeadLetter, cutAt posthaste.MessageID, err error) {
	limit, err := limited(f.Limit, "dead letters")
	if err != nil {
		return nil, 0, err
	}
	if f.Subscription != "" {
		if f.Queue == "" {
			return nil, 0, posthaste.Invalidf("subscription", "a subscription is one of a queue, and no queue is given")
		}
		if _, err := e.registry.find(ctx, posthaste.QueueRef{Queue: f.Queue, Subscription: f.Subscription}); err != nil {
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
	}, func(t *told) bool { return len(t.deadLetters(&f)) > 0 })
	for i, t := range all {
		some := t.deadLetters(&f)
		if len(found)+len(some) > limit && i > 0 { // keep those of one message together
			return found, all[i-1].ID, err
		}
		found = append(found, some...)
	}
	return found, cutAt, err
}

// Replay implements [posthaste.Admin].
func (e *Engine) Replay(ctx context.Context, by string, ids ...posthaste.MessageID) ([]posthaste.MessageID, error) {
	return e.buryThese(ctx, by, "replay", ids)
}

// Discard implements [posthaste.Admin].
func (e *Engine) Discard(ctx context.Context, by string, ids ...posthaste.MessageID) ([]posthaste.MessageID, error) {
	return e.buryThese(ctx, by, "discard", ids)
}

func (e *Engine) buryThese(ctx context.Context, by, action string, ids []posthaste.MessageID) ([]posthaste.MessageID, error) {
	were, err := e.bury(ctx, by, action, ids, nil)
	if err == nil && len(ids) > 0 && len(were) == 0 {
		return nil, &posthaste.Error{Code: posthaste.NotFound, Field: "message_ids", Hint: "DeadLetters lists them, Actions tells who replayed or discarded one",
			Message: noDeadLetters(ids)}
	}
	return were, err
}

// noDeadLetters is an error text with the first of the ids.
func noDeadLetters(ids []posthaste.MessageID) string {
	text := fmt.Sprintf("no dead letter to act on: message %d", ids[0])
	for _, id := range ids[1:min(len(ids), 5)] {
		text += fmt.Sprintf(", %d", id)
	}
	if len(ids) > 5 {
		text += fmt.Sprintf(" and %d more", len(ids)-5)
	}
	return text
}

// buryMost bounds one script, as claimMost.
const buryMost = 200

// dying is a possible dead letter: a message, by its place, and a subscription.
type dying struct{ queue, subscription, place string }

// bury replays or discards the dead letters of messages, or only those that are in only, if
// that is not nil.
func (e *Engine) bury(ctx context.Context, by, action string, ids []posthaste.MessageID, only map[dying]bool) (were []posthaste.MessageID, err error) {
	byName, err := e.places(ctx, ids)
	if err != nil {
		return nil, err
	}
	for name, all := range byName {
		for places := range slices.Chunk(all, buryMost) {
			err := e.each(ctx, buryScript, name, func(q *queue) arguments {
				args := arguments{{"number", q.numberArg}, {"rules", q.rules}, {"action", action}}
				for _, p := range places {
					if only == nil || only[dying{name, q.subscription, p}] {
						args = append(args, arg{is: p})
					}
				}
				return args
			}, func(q *queue, reply any) error {
				buried, err := list(action, reply, 0)
				if err != nil {
					return err
				}
				var actions []record
				for _, p := range buried {
					n, err := id(str(p), q.messages)
					if err != nil {
						return err
					}
					were = append(were, posthaste.MessageID(n))
					details, err := json.Marshal(map[string]any{"subscription": q.subscription})
					if err != nil {
						return err
					}
					if q.born == nil {
						details = []byte(`{"subscription":0}`)
					}
					actions = append(actions, record{By: by, Action: action, Queue: name, Message: posthaste.MessageID(n), Details: details})
				}
				return e.record(ctx, actions...)
			})
			if err != nil {
				return slices.Compact(slices.Sorted(slices.Values(were))), writeError(err)
			}
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(were))), nil
}

// ReplayMatching implements [posthaste.Admin]. It runs one script per 200 dead letters of a
// queue.
func (e *Engine) ReplayMatching(ctx context.Context, by string, f posthaste.DeadLetterFilter) ([]posthaste.MessageID, posthaste.MessageID, error) {
	return e.buryMatching(ctx, by, "replay", f)
}

// DiscardMatching implements [posthaste.Admin], like ReplayMatching.
func (e *Engine) DiscardMatching(ctx context.Context, by string, f posthaste.DeadLetterFilter) ([]posthaste.MessageID, posthaste.MessageID, error) {
	return e.buryMatching(ctx, by, "discard", f)
}

func (e *Engine) buryMatching(ctx context.Context, by, action string, f posthaste.DeadLetterFilter) (were []posthaste.MessageID, next posthaste.MessageID, err error) {
	if err := f.CheckChoice(); err != nil {
		return nil, 0, err
	}
	limit, err := limited(f.Limit, "dead letters")
	if err != nil {
		return nil, 0, err
	}
	found, cutAt, err := e.DeadLetters(ctx, f)
	if err != nil {
		return nil, 0, err
	}
	ids, only := make([]posthaste.MessageID, len(found)), map[dying]bool{}
	for i, d := range found {
		ids[i], only[dying{d.Queue, d.Subscription, place(int64(d.ID))}] = d.ID, true
	}
	if next = cutAt; len(found) >= limit { // or more, if one message has more
		next = ids[len(ids)-1]
	}
	were, err = e.bury(ctx, by, action, ids, only)
	return were, next, err
}
