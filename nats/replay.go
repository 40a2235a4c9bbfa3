package nats

import (
	"context"
	"errors"
	"strconv"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

// Replay implements [posthaste.MessageAdmin]. Each dead letter is replayed in one step of its own.
func (e *Engine) Replay(ctx context.Context, f posthaste.DeadLetterFilter) (posthaste.Page[posthaste.MessageID], error) {
	return e.actOnLetters(ctx, "replay", f, e.replayLetter)
}

// Discard implements [posthaste.MessageAdmin], like Replay.
func (e *Engine) Discard(ctx context.Context, f posthaste.DeadLetterFilter) (posthaste.Page[posthaste.MessageID], error) {
	return e.actOnLetters(ctx, "discard", f, e.discardLetter)
}

func (e *Engine) actOnLetters(ctx context.Context, action string, f posthaste.DeadLetterFilter, act func(context.Context, *letter) (bool, error)) (page posthaste.Page[posthaste.MessageID], err error) {
	letters, next, err := e.chosenLetters(ctx, &f)
	if err != nil {
		return page, err
	}
	page.Items, err = e.actOnEach(ctx, letters, func(ctx context.Context, l *letter) (bool, error) {
		did, err := act(ctx, l)
		if did {
			err = errors.Join(err, e.record(ctx, action, l.q.Name, l.id, map[string]any{"subscription": l.subscription}))
		}
		return did, err
	})
	switch {
	case err != nil:
		return page, err
	case len(f.IDs) > 0 && len(page.Items) == 0:
		return page, &posthaste.Error{Code: posthaste.CodeNotFound, Field: "message_ids", Hint: "DeadLetters lists them, Actions tells who replayed or discarded one", Message: "no dead letter to act on: message " + quote.IDs(f.IDs)}
	case len(f.IDs) == 0:
		page.Next = next
	}
	return page, nil
}

// headerReplayed marks the entry that replaces a dead letter in the batch that replays it. This process
// removes that entry at once. If it is killed before, the server does after replayedFor.
const (
	headerReplayed = "Posthaste-Replayed"
	replayedFor    = "60s"
)

// replayLetter sends the message of a dead letter again, in one batch with the entry that replaces the
// dead letter. It reports false if another call has replayed or discarded it.
func (e *Engine) replayLetter(ctx context.Context, l *letter) (bool, error) {
	next := *l.meta
	next.Attempt, next.Failures, next.Losses, next.LostAlone = next.attempt(), 0, 0, 0
	if n := len(next.Story); n > 0 {
		next.Attempt = next.Story[n-1].Attempt + 1
	}
	next.Due, next.Since, next.DiedAt, next.Error, next.From = 0, micros(e.clock.now()), 0, "", l.seq
	q, err := e.ensurePriority(ctx, l.q, next.Priority)
	if err != nil {
		return false, err
	}
	entry := next.encoded(q.subjects.under("r", subjectToken(l.subscription), strconv.Itoa(q.laneOf(&next))), l.body)
	end := &natsgo.Msg{Subject: l.subject(), Header: natsgo.Header{headerReplayed: {"1"}, headerTTL: {replayedFor}, "Nats-Rollup": {"sub"}, headerExpectedSeq: {strconv.FormatUint(l.seq, 10)}}}
	switch err := e.store(ctx, q, []*natsgo.Msg{entry, end}); {
	case errors.Is(err, errExists):
		return false, nil
	case err != nil:
		return false, err
	}
	if last, err := e.lastOn(ctx, q.stream, l.subject()); err == nil && last != nil && last.Header.Get(headerReplayed) != "" {
		_, _ = e.deleteEntry(ctx, q.stream, last.Sequence)
	}
	return true, nil
}

// discardLetter removes a dead letter, and stores that the message was discarded.
func (e *Engine) discardLetter(ctx context.Context, l *letter) (bool, error) {
	removed, err := e.deleteEntry(ctx, l.q.stream, l.seq)
	if err != nil || !removed {
		return false, err
	}
	if len(l.q.Subscriptions) == 1 {
		e.freeDedupeKey(ctx, l.q, l.meta)
	}
	return true, e.storeEnd(ctx, l.q, l.subscription, l.meta, l.body, posthaste.StateDiscarded)
}

// Erase implements [posthaste.MessageAdmin]: messages are not found by their terms.
func (e *Engine) Erase(_ context.Context, term string, _ posthaste.MessageID) (page posthaste.Page[posthaste.Erasure], err error) {
	if term == "" {
		return page, posthaste.Invalidf("term", "term must not be empty")
	}
	return page, unsupported("term", "erasing messages by a term is not supported")
}
