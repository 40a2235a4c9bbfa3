package remote

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// idempotencyKey is the header by which the server recognizes a repeated request.
const idempotencyKey = "Idempotency-Key"

// Send implements [posthaste.Sender]. A request whose response is lost is repeated with the same
// Idempotency-Key, so that nothing is stored twice.
func (s *Store) Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.Sent, error) {
	sent, _, err := s.SendOnce(ctx, posthaste.Idempotency{Key: rand.Text()}, messages...)
	return sent, err
}

// SendOnce implements [posthaste.Engine]. The server chooses scope, digest and window.
func (s *Store) SendOnce(ctx context.Context, request posthaste.Idempotency, messages ...posthaste.Message) (sent []posthaste.Sent, replayed bool, err error) {
	if len(messages) == 0 {
		return nil, false, nil
	}
	if !wire.IsVisible(request.Key) {
		return nil, false, posthaste.Invalidf("idempotency-key", "an idempotency key must have visible ASCII characters without spaces")
	}
	c, err := sending(messages)
	if err != nil {
		return nil, false, err
	}
	c.header = http.Header{idempotencyKey: {request.Key}}
	r, err := s.repeated(ctx, c)
	if err != nil {
		return nil, false, err
	}
	sent, err = sentOf(r, len(messages))
	if err != nil {
		return nil, false, s.unreadable(err)
	}
	return sent, r.header.Get("Idempotent-Replayed") == "true", nil
}

// sending returns the call that sends messages.
func sending(messages []posthaste.Message) (c call, err error) {
	c = call{method: http.MethodPost, path: path("/v1/queues/{}/messages", messages[0].Queue)}
	for _, m := range messages {
		if m.Queue != messages[0].Queue {
			return c, &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "queue", Message: "one request to a server sends to one queue, got " + messages[0].Queue + " and " + m.Queue}
		}
		if err := m.Check(); err != nil {
			return c, err
		}
	}
	if len(messages) == 1 {
		c.body, err = wire.EncodeMessage(messages[0])
		return c, err
	}
	c.path += "/batch"
	c.body, err = wire.EncodeBatch(messages)
	return c, err
}

// repeats are the times after which a send whose response was lost is repeated.
var repeats = []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second}

// repeated makes a call that has an Idempotency-Key, again while its response is lost.
func (s *Store) repeated(ctx context.Context, c call) (reply, error) {
	r, err := s.do(ctx, c)
	if posthaste.CodeOf(err) != posthaste.CodeOutcomeUnknown {
		return r, err
	}
	for _, wait := range repeats {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return r, unsure(c, ctx.Err())
		}
		if r, err = s.do(ctx, c); err == nil || decides(err) {
			return r, err
		}
	}
	return r, unsure(c, err)
}

// decides reports whether the error of a repeated request says that the request before it stored
// nothing. Other errors, such as that of a token that was dropped meanwhile, say nothing about it.
func decides(err error) bool {
	_, answered := errors.AsType[*problem](err)
	switch posthaste.CodeOf(err) {
	case posthaste.CodeInvalid, posthaste.CodeNotFound, posthaste.CodeConflict, posthaste.CodeKeyReused, posthaste.CodeTooLarge, posthaste.CodeUnsupported:
		return answered
	}
	return false
}

// unsure is the error if it is not known whether messages were stored.
func unsure(c call, cause error) error {
	return &posthaste.Error{Code: posthaste.CodeOutcomeUnknown, Message: "it is not known whether the messages were stored: " + printable(cause.Error()),
		Hint: "repeat the command with --idempotency-key " + c.header.Get(idempotencyKey) + " within 24 hours, which stores nothing twice", Cause: cause}
}

// sentOf reads what became of n messages.
func sentOf(r reply, n int) ([]posthaste.Sent, error) {
	if n == 1 {
		var one wire.Sent
		err := json.Unmarshal(r.body, &one)
		return []posthaste.Sent{posthaste.Sent(one)}, err
	}
	var many wire.SentMany
	if err := json.Unmarshal(r.body, &many); err != nil {
		return nil, err
	}
	if many.Sent != nil {
		all := make([]posthaste.Sent, len(many.Sent))
		for i, one := range many.Sent {
			all[i] = posthaste.Sent(one)
		}
		return all, nil
	}
	all := make([]posthaste.Sent, len(many.IDs))
	for i, id := range many.IDs {
		all[i].ID = id
	}
	return all, nil
}

// Message implements [posthaste.MessageAdmin].
func (s *Store) Message(ctx context.Context, id posthaste.MessageID) (posthaste.MessageInfo, error) {
	var shown wire.Message
	if err := s.get(ctx, path("/v1/messages/{}", id.String()), nil, &shown); err != nil {
		return posthaste.MessageInfo{}, err
	}
	info, err := shown.Stored()
	if err != nil {
		return info, s.unreadable(err)
	}
	return info, nil
}

// Messages implements [posthaste.MessageAdmin].
func (s *Store) Messages(ctx context.Context, f posthaste.MessageFilter) (posthaste.Page[posthaste.MessageInfo], error) {
	query := url.Values{
		"queue": {f.Queue}, "reference": {f.Reference}, "key": {f.Key}, "kind": {f.Kind}, "term": {f.Term}, "state": {string(f.State)}, "created_from": {timeText(f.CreatedFrom)},
	}
	return page(ctx, s, "/v1/messages", wire.ListMessages, query, f.Before, f.Limit, wire.Message.Stored)
}

// Cancel implements [posthaste.MessageAdmin].
func (s *Store) Cancel(ctx context.Context, id posthaste.MessageID) ([]posthaste.Withdrawal, error) {
	return s.withdraw(ctx, http.MethodDelete, path("/v1/messages/{}", id.String()), nil)
}

// Reschedule implements [posthaste.MessageAdmin].
func (s *Store) Reschedule(ctx context.Context, id posthaste.MessageID, at time.Time) ([]posthaste.Withdrawal, error) {
	if err := posthaste.CheckTime("send_at", at); err != nil {
		return nil, err
	}
	return s.withdraw(ctx, http.MethodPost, path("/v1/messages/{}/reschedule", id.String()), map[string]time.Time{"send_at": at})
}

func (s *Store) withdraw(ctx context.Context, method, path string, body any) ([]posthaste.Withdrawal, error) {
	var shown wire.Withdrawn
	err := s.send(ctx, method, path, body, &shown)
	if p, ok := errors.AsType[*problem](err); ok && p.Subscriptions != nil {
		shown.Subscriptions, err = p.Subscriptions, nil
	}
	all := make([]posthaste.Withdrawal, len(shown.Subscriptions))
	for i, one := range shown.Subscriptions {
		all[i] = posthaste.Withdrawal(one)
	}
	return all, err
}

// UpdateMessage implements [posthaste.MessageAdmin].
func (s *Store) UpdateMessage(ctx context.Context, id posthaste.MessageID, update posthaste.MessageUpdate) (posthaste.Updated, error) {
	c := call{method: http.MethodPatch, path: path("/v1/messages/{}", id.String()), header: http.Header{"If-Match": {"*"}}}
	if update.Version != "" {
		c.header.Set("If-Match", strconv.Quote(update.Version))
	}
	var err error
	if c.body, err = wire.EncodeUpdate(update); err != nil {
		return posthaste.Updated{}, err
	}
	var shown wire.Updated
	r, err := s.do(ctx, c)
	err = s.decode(r, err, &shown)
	return posthaste.Updated{ID: shown.ID, Version: shown.Version}, err
}

// RunMessage implements [posthaste.MessageAdmin].
func (s *Store) RunMessage(ctx context.Context, id posthaste.MessageID) ([]posthaste.RunResult, error) {
	var shown wire.Ran
	err := s.send(ctx, http.MethodPost, path("/v1/messages/{}/run", id.String()), nil, &shown)
	if p, ok := errors.AsType[*problem](err); ok && p.Subscriptions != nil {
		err = nil
		for _, one := range p.Subscriptions {
			shown.Subscriptions = append(shown.Subscriptions, wire.RunResult{Subscription: one.Subscription, State: one.State})
		}
	}
	all := make([]posthaste.RunResult, len(shown.Subscriptions))
	for i, one := range shown.Subscriptions {
		all[i] = posthaste.RunResult(one)
	}
	return all, err
}

// deadFields returns the fields of a filter of dead letters that are set.
func deadFields(f posthaste.DeadLetterFilter) map[string]string {
	fields := map[string]string{
		"queue": f.Queue, "subscription": f.Subscription, "kind": f.Kind, "key": f.Key, "reference": f.Reference, "term": f.Term, "error": f.Error,
		"died_from": timeText(f.DiedFrom), "died_before": timeText(f.DiedBefore),
	}
	for name, text := range fields {
		if text == "" {
			delete(fields, name)
		}
	}
	return fields
}

// DeadLetters implements [posthaste.MessageAdmin].
func (s *Store) DeadLetters(ctx context.Context, f posthaste.DeadLetterFilter) (posthaste.Page[posthaste.DeadLetter], error) {
	query := url.Values{}
	for name, text := range deadFields(f) {
		query.Set(name, text)
	}
	for _, id := range f.IDs {
		query.Add("id", id.String())
	}
	return page(ctx, s, "/v1/dead-letters", wire.ListDeadLetters, query, f.Before, f.Limit, wire.DeadLetter.Stored)
}

// Replay implements [posthaste.MessageAdmin].
func (s *Store) Replay(ctx context.Context, f posthaste.DeadLetterFilter) (posthaste.Page[posthaste.MessageID], error) {
	return s.decide(ctx, "/v1/dead-letters/replay", f)
}

// Discard implements [posthaste.MessageAdmin].
func (s *Store) Discard(ctx context.Context, f posthaste.DeadLetterFilter) (posthaste.Page[posthaste.MessageID], error) {
	return s.decide(ctx, "/v1/dead-letters/discard", f)
}

// decide replays or discards dead letters.
func (s *Store) decide(ctx context.Context, path string, f posthaste.DeadLetterFilter) (done posthaste.Page[posthaste.MessageID], err error) {
	fields := deadFields(f)
	if err := cmp.Or(f.CheckChoice(), checkTexts(fields)); err != nil {
		return done, err
	}
	body := map[string]any{}
	switch {
	case len(f.IDs) > 0:
		body["ids"] = f.IDs
	case f.All:
		body["all"] = true
	default:
		body["filter"] = fields
	}
	if len(f.IDs) == 0 && f.Limit != 0 {
		body["limit"] = f.Limit
	}
	if f.Before != 0 {
		body["cursor"] = wire.NewIDCursor(wire.ListDeadLetters, f.Before)
	}
	var shown wire.Decided
	if err := s.send(ctx, http.MethodPost, path, body, &shown); err != nil {
		return done, err
	}
	done.Items, done.Conflicts = shown.IDs, shown.UniqueConflict
	done.Next, err = s.nextOf(wire.ListDeadLetters, shown.Next)
	return done, err
}

// Erase implements [posthaste.MessageAdmin]. The API does not tell the queues of the messages.
func (s *Store) Erase(ctx context.Context, term string, before posthaste.MessageID) (found posthaste.Page[posthaste.Erasure], err error) {
	body := map[string]string{"term": term}
	if err := checkTexts(body); err != nil {
		return found, err
	}
	if before != 0 {
		body["cursor"] = wire.NewIDCursor(wire.ListErasures, before)
	}
	var shown wire.Erased
	if err := s.send(ctx, http.MethodPost, "/v1/erase", body, &shown); err != nil {
		return found, err
	}
	for _, id := range shown.Erased {
		found.Items = append(found.Items, posthaste.Erasure{MessageID: id})
	}
	for _, id := range shown.Pending {
		found.Items = append(found.Items, posthaste.Erasure{MessageID: id, Pending: true})
	}
	slices.SortFunc(found.Items, func(a, b posthaste.Erasure) int { return cmp.Compare(b.MessageID, a.MessageID) })
	found.Next, err = s.nextOf(wire.ListErasures, shown.Next)
	return found, err
}
