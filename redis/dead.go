package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/quote"
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

// DeadLetters implements [posthaste.MessageAdmin]. It looks at up to 3,000 dead letters. If one
// message has more dead letters than the limit, it returns them all.
func (e *Engine) DeadLetters(ctx context.Context, f posthaste.DeadLetterFilter) (page posthaste.Page[posthaste.DeadLetter], err error) {
	limit, err := limited(f.Limit, "dead letters")
	if err != nil {
		return page, err
	}
	if f.Subscription != "" {
		if f.Queue == "" {
			return page, posthaste.Invalidf("subscription", "subscription needs a queue")
		}
		if _, err := e.registry.find(ctx, posthaste.QueueRef{Queue: f.Queue, Subscription: f.Subscription}); err != nil {
			return page, err
		}
	}
	var byID map[string][]string
	if f.IDs != nil {
		if byID, err = e.places(ctx, f.IDs); err != nil {
			return page, err
		}
	}
	from := e.listed("d")
	switch {
	case byID != nil:
		from = placesIn(byID)
	case f.Reference != "" || f.Term != "":
		from = e.worded(f.Reference, f.Term)
	}
	var letters [][]posthaste.DeadLetter // of each message that is found
	all, cutAt, err := e.search(ctx, f.Queue, limit, f.Before, from, func(t *told) bool {
		some := t.deadLetters(&f)
		if len(some) > 0 {
			letters = append(letters, some)
		}
		return len(some) > 0
	})
	if err != nil {
		return page, err
	}
	for i, some := range letters {
		if len(page.Items)+len(some) > limit && i > 0 { // keep those of one message together
			page.Next = all[i-1].ID
			return page, nil
		}
		page.Items = append(page.Items, some...)
	}
	return posthaste.NewPage(page.Items, limit, cutAt, func(d *posthaste.DeadLetter) posthaste.MessageID { return d.ID }), nil
}

// placesIn returns the source of chosen messages, by the names of their queues.
func placesIn(byName map[string][]string) source {
	return func(_ context.Context, strands []*strand) error {
		for _, s := range strands {
			for _, p := range byName[s.q.name] {
				if n, _ := parseMicros(p); n <= s.from {
					s.got = append(s.got, n)
				}
			}
		}
		return nil
	}
}

// Replay implements [posthaste.MessageAdmin]. It runs one script per 200 dead letters of a
// queue.
func (e *Engine) Replay(ctx context.Context, f posthaste.DeadLetterFilter) (posthaste.Page[posthaste.MessageID], error) {
	return e.buryChosen(ctx, "replay", f)
}

// Discard implements [posthaste.MessageAdmin], like Replay.
func (e *Engine) Discard(ctx context.Context, f posthaste.DeadLetterFilter) (posthaste.Page[posthaste.MessageID], error) {
	return e.buryChosen(ctx, "discard", f)
}

func (e *Engine) buryChosen(ctx context.Context, action string, f posthaste.DeadLetterFilter) (page posthaste.Page[posthaste.MessageID], err error) {
	if err := f.CheckChoice(); err != nil {
		return page, err
	}
	if len(f.IDs) > 0 {
		page.Items, page.Conflicts, err = e.bury(ctx, action, f.IDs, nil)
		if err == nil && len(page.Items) == 0 && len(page.Conflicts) > 0 {
			err = &posthaste.Error{Code: posthaste.CodeUniqueConflict, Field: "unique", Hint: "wait until that one has ended, or discard the dead letter",
				Message: fmt.Sprintf("message %d stays a dead letter, because another message holds its unique key", page.Conflicts[0])}
		} else if err == nil && len(page.Items) == 0 {
			err = &posthaste.Error{Code: posthaste.CodeNotFound, Field: "message_ids", Hint: "DeadLetters lists them, Actions tells who replayed or discarded one",
				Message: "no dead letter to act on: message " + quote.IDs(f.IDs)}
		}
		return page, err
	}
	found, err := e.DeadLetters(ctx, f)
	if err != nil {
		return page, err
	}
	ids, only := make([]posthaste.MessageID, len(found.Items)), map[dying]bool{}
	for i, d := range found.Items {
		ids[i], only[dying{d.Queue, d.Subscription, place(int64(d.ID))}] = d.ID, true
	}
	page.Next = found.Next
	page.Items, page.Conflicts, err = e.bury(ctx, action, ids, only)
	return page, err
}

// buryMost bounds one script, as claimMost.
const buryMost = 200

// dying is a possible dead letter: a message, by its place, and a subscription.
type dying struct{ queue, subscription, place string }

// bury replays or discards the dead letters of messages, or only those that are in only, if
// that is not nil. It returns them, and those that stay because of their unique keys.
func (e *Engine) bury(ctx context.Context, action string, ids []posthaste.MessageID, only map[dying]bool) (were, held []posthaste.MessageID, err error) {
	byName, err := e.places(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	for name, all := range byName {
		for places := range slices.Chunk(all, buryMost) {
			places, conflicts, err := e.uniqueAgain(ctx, action, name, places)
			if err != nil {
				return were, held, err
			}
			held = append(held, conflicts...)
			err = e.eachWith(ctx, buryScript, name, []string{e.keys.unique(name)}, func(q *queue) arguments {
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
					p, stays := strings.CutPrefix(str(p), "!")
					n, err := id(p, q.messages)
					if err != nil {
						return err
					}
					if stays {
						held = append(held, posthaste.MessageID(n))
						continue
					}
					were = append(were, posthaste.MessageID(n))
					details, err := json.Marshal(map[string]any{"subscription": q.subscription})
					if err != nil {
						return err
					}
					if q.born == nil {
						details = []byte(`{"subscription":0}`)
					}
					actions = append(actions, record{Action: action, Queue: name, Message: posthaste.MessageID(n), Details: details})
				}
				return e.record(ctx, actions...)
			})
			if err != nil {
				return slices.Compact(slices.Sorted(slices.Values(were))), held, writeError(err)
			}
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(were))), slices.Compact(slices.Sorted(slices.Values(held))), nil
}
