package nats

import (
	"context"
	"encoding/json"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
)

// In an ordered queue a message that is delivered again stays in its entry, because a copy would come
// after later messages of its key. The fields that change with each attempt are stored beside it, on
// n.<sub>.<id>.kept. So, unlike elsewhere, a redelivery runs, unless the message is a dead letter.

// kept is a message of an ordered queue after an attempt.
type kept struct {
	Meta *meta `json:"meta"`
	// After is how often the server had delivered the message by then. If it has delivered it more than
	// once since, the last delivery was lost.
	After int `json:"after"`
}

// giveBackInOrder stores the message as it is after an attempt, and lets the server redeliver its entry
// after a time.
func (e *Engine) giveBackInOrder(ctx context.Context, d *held, next *meta, after time.Duration) error {
	if err := e.storeKept(ctx, d, next); err != nil {
		return err
	}
	return e.nak(ctx, d, after)
}

func (d *held) keptSubject() string {
	return d.q.subjects.under("n", subjectToken(d.sub.Name), d.meta.ID.String(), "kept")
}

func (e *Engine) storeKept(ctx context.Context, d *held, next *meta) error {
	body, err := json.Marshal(kept{Meta: next, After: d.delivered})
	if err != nil {
		return err
	}
	return e.store(ctx, d.q, []*natsgo.Msg{{Subject: d.keptSubject(), Header: natsgo.Header{"Nats-Rollup": {"sub"}}, Data: body}})
}

// restoreOrdered handles a redelivery in an ordered queue: it reads the fields of the message after its
// last attempt, and puts it into the buffer. If the last delivery was lost, that counts as an attempt.
func (e *Engine) restoreOrdered(ctx context.Context, q *queue, sub *subscription, b *buffer, a *arrival) {
	d := a.held(q, sub, b, e.clock.now())
	if followed, err := e.endFollowed(ctx, d); err != nil || followed {
		return // after an error, the server redelivers it again
	}
	m, err := e.lastOn(ctx, q.stream, d.keptSubject())
	if err != nil {
		return
	}
	after := 0
	if m != nil {
		var k kept
		if err := json.Unmarshal(m.Data, &k); err == nil && k.Meta != nil && k.Meta.From == a.seq {
			d.meta, after = k.Meta, k.After
		}
	}
	if after < a.delivered-1 {
		cancelled, err := e.wasCancelled(ctx, d)
		if err != nil {
			return
		}
		d.note, d.alone, d.cancelled = e.readNote(ctx, d), d.meta.Losses >= 2, cancelled
		lost := posthaste.Settlement{Outcome: posthaste.OutcomeLost, Error: "its holder is gone"}
		next, outcome, _ := e.nextAttempt(d, lost)
		if isFinal(outcome) {
			_, _ = e.settleByEntry(ctx, d, lost) // after an error, the server redelivers it again
			return
		}
		d.meta, d.delivered = next, a.delivered-1
		if e.storeKept(ctx, d, next) != nil {
			return
		}
	}
	a.meta = d.meta
	e.buffers.put(b, a)
}
