package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
)

// UpdateMessage implements [posthaste.MessageAdmin]. It reads the message and replaces the
// content if that is still the same, which it tries again if it is not. An edited copy of a dead
// letter is sent before the dead letter is discarded, and from then on it cannot be replayed: if the
// process dies in between, the same call discards it.
func (e *Engine) UpdateMessage(ctx context.Context, wanted posthaste.MessageID, update posthaste.MessageUpdate) (u posthaste.Updated, err error) {
	for range 5 {
		u, stale, err := e.tryUpdate(ctx, wanted, update)
		if !stale || err != nil {
			return u, writeError(err)
		}
	}
	return u, &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "the message is being changed by others", Hint: "try again"}
}

func (e *Engine) tryUpdate(ctx context.Context, wanted posthaste.MessageID, update posthaste.MessageUpdate) (u posthaste.Updated, stale bool, err error) {
	before, err := e.Message(ctx, wanted)
	if err != nil {
		return u, false, err
	}
	if update.Version != "" && update.Version != before.Version {
		return u, false, &posthaste.Error{Code: posthaste.CodeStale, Field: "version", Hint: "read it again, and repeat the change with its version",
			Message: fmt.Sprintf("message %d has the version %s, not %s", wanted, before.Version, update.Version)}
	}
	q, err := e.registry.queue(ctx, before.Queue)
	if err != nil {
		return u, false, err
	}
	text, err := e.client.HGet(ctx, e.keys.of(q.name, "msg"), place(int64(wanted))).Result()
	if err != nil {
		return u, false, notChanged(&before)
	}
	old, err := decodeContent(text)
	if err != nil {
		return u, false, err
	}
	was := posthaste.Message{Queue: q.name, Key: old.key, Kind: old.kind, Headers: old.headers, Reference: old.reference, Terms: old.terms, ContentType: old.contentType, Payload: old.payload, Priority: old.priority}
	old.attempts.addTo(&was)
	now, err := update.Apply(was)
	if err != nil {
		return u, false, err
	}
	dead := slices.ContainsFunc(before.Subscriptions, func(s posthaste.MessageState) bool { return s.State == posthaste.StateDead })
	waits := slices.ContainsFunc(before.Subscriptions, func(s posthaste.MessageState) bool {
		return s.State == posthaste.StateReady || s.State == posthaste.StateScheduled || s.State == posthaste.StateRetrying
	})
	switch {
	case dead && !waits:
		u, err = e.editDead(ctx, q, &before, now)
		return u, false, err
	case q.options.Ordered:
		return u, false, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "queue", Hint: "cancel it, and send another",
			Message: "a message of an ordered queue cannot be replaced or edited, because it would lose its place in the order of its key"}
	case q.looks > 0 && now.Key != was.Key:
		return u, false, otherRoute(wanted, "key")
	case q.excluded(&now) != q.excluded(&was):
		return u, false, otherRoute(wanted, "kind")
	}
	c, err := contentOf(&now, q)
	if err != nil {
		return u, false, err
	}
	reply, q, err := e.togetherWith(ctx, editScript, q.name, nil, func(q *queue) arguments {
		return arguments{{"letters", q.allLetters()}, {"rejects", q.excluded(&was)}, {"id", place(int64(wanted))}, {"was", text}, {"content", c.encode()}, {"found", packed(words(&now))}}
	})
	switch refused, _ := reply.([]any); {
	case err != nil || reply == "stale":
		return u, reply == "stale" && update.Version == "", err
	case len(refused) == 2:
		at, _ := refused[0].(int64)
		return u, false, refusedIn(wanted, q.all()[at-1].subscription, str(refused[1]))
	}
	return posthaste.Updated{ID: wanted, Version: c.version()}, false, e.record(ctx, record{Action: "update", Queue: q.name, Message: wanted})
}

func (c *content) version() string {
	return posthaste.VersionOf(&posthaste.MessageInfo{Key: c.key, Kind: c.kind, Headers: c.headers, Reference: c.reference, Terms: c.terms, ContentType: c.contentType, Payload: c.payload})
}

// notChanged is the error for a message without content.
func notChanged(m *posthaste.MessageInfo) error {
	return refusedIn(m.ID, m.Subscriptions[0].Subscription, string(m.Subscriptions[0].State))
}

func refusedIn(id posthaste.MessageID, subscription, state string) error {
	return &posthaste.Error{Code: posthaste.CodeConflict, Field: "message_id", Hint: "a message can be changed while it waits and no subscription was handed it",
		Message: fmt.Sprintf("message %d was not changed: it is %s in subscription %q", id, state, subscription)}
}

// editDead sends an edited copy of a dead letter to the subscriptions in which it is dead, and
// discards it.
func (e *Engine) editDead(ctx context.Context, q *queue, was *posthaste.MessageInfo, now posthaste.Message) (u posthaste.Updated, err error) {
	if q.looks > 0 {
		return u, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "queue", Hint: "send a new message, and discard this one",
			Message: "a dead letter of a queue that looks at keys cannot be edited: its place among those of its key belongs to its id"}
	}
	of, dead := &editedCopy{}, place(int64(was.ID))
	gone := map[dying]bool{} // one that dies only now has no copy, and stays
	for _, s := range q.all() {
		gets := slices.ContainsFunc(was.Subscriptions, func(m posthaste.MessageState) bool {
			return m.Subscription == s.subscription && m.State == posthaste.StateDead
		})
		if gone[dying{q.name, s.subscription, dead}] = gets; !gets {
			of.letters += cmp.Or(s.letter, "@")
		}
	}
	if of.unique, err = e.uniqueOf(ctx, q.name, dead); err != nil {
		return u, err
	}
	now.Headers = posthaste.ReplayHeaders(now.Headers, was.ID)
	sent, err := e.sendAll(ctx, sendHead{copies: of, Dead: dead, Without: of.letters}, "", []posthaste.Message{now})
	if err != nil {
		return u, err
	}
	if sent[0].State != "" {
		return u, &posthaste.Error{Code: posthaste.CodeUniqueConflict, Field: "unique", Hint: "wait until that one has ended, or discard this one",
			Message: fmt.Sprintf("message %d cannot be sent again, because message %d holds its unique key", was.ID, sent[0].ID)}
	}
	if of.before != "" {
		for _, s := range q.all() {
			gone[dying{q.name, s.subscription, dead}] = strings.Contains(of.before, cmp.Or(s.letter, "@"))
		}
	}
	if _, _, err := e.bury(ctx, "discard", []posthaste.MessageID{was.ID}, gone); err != nil {
		return u, err
	}
	if sent[0].Duplicate {
		return u, &posthaste.Error{Code: posthaste.CodeConflict, Field: "message_id", Message: fmt.Sprintf("message %d was edited before: message %d is the edited copy", was.ID, sent[0].ID)}
	}
	u.ID = sent[0].ID
	if m, err := e.Message(ctx, u.ID); err == nil {
		u.Version = m.Version
	}
	return u, nil
}

// uniqueOf returns the unique key of a message, or nil.
func (e *Engine) uniqueOf(ctx context.Context, name, place string) (*sendUnique, error) {
	text, err := e.client.HGet(ctx, e.keys.unique(name), "@"+place).Result()
	if errors.Is(err, goredis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, readError(err)
	}
	var its struct {
		Key   string `codec:"k"`
		Until string `codec:"u"`
	}
	if err := unpack(text, &its); err != nil {
		return nil, err
	}
	return &sendUnique{Key: its.Key, Until: its.Until, Of: place}, nil
}

// RunMessage implements [posthaste.MessageAdmin].
func (e *Engine) RunMessage(ctx context.Context, id posthaste.MessageID) (all []posthaste.RunResult, err error) {
	m, err := e.Message(ctx, id)
	if err != nil {
		return nil, err
	}
	// A message that is due already keeps its place.
	if slices.ContainsFunc(m.Subscriptions, func(s posthaste.MessageState) bool { return !s.DueAt.IsZero() }) {
		if _, err = e.withdraw(ctx, "run", id, 0); err == nil {
			m, err = e.Message(ctx, id)
		}
		if err != nil {
			return nil, err
		}
	}
	infos, err := e.Queues(ctx, m.Queue)
	if err != nil {
		return nil, err
	}
	for _, s := range m.Subscriptions {
		r := posthaste.RunResult{Subscription: s.Subscription, State: s.State}
		if s.State == posthaste.StateReady || s.State == posthaste.StateScheduled || s.State == posthaste.StateRetrying {
			r.Due = true
			for _, info := range infos {
				r.HeldBy = posthaste.HeldBy(&info, &m, s.Subscription)
			}
		}
		all = append(all, r)
	}
	return all, nil
}
