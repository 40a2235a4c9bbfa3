package nats

import (
	"context"
	"math"

	"github.com/posthaste-mq/posthaste"
)

// arrive decides about a message that came: it goes into the buffer, is acknowledged because the
// subscription does not want it or its schedule has fired twice, or is a redelivery and is continued.
func (e *Engine) arrive(b *buffer, a *arrival, finished func()) {
	q, sub := e.sourceOf(b)
	m, body, err := decode(a.Header, a.Data)
	info, infoErr := a.Metadata()
	switch {
	case sub == nil || infoErr != nil: // the queue or the subscription was dropped
		finished()
		return
	case err != nil:
		finished()
		e.runInBackground(func(ctx context.Context) { e.buryForeign(ctx, q, sub, a, err) })
		return
	}
	a.meta, a.body, a.seq, a.delivered = m, body, info.Sequence.Stream, int(info.NumDelivered)
	once := q.Options.Mode == posthaste.AtMostOnce
	switch {
	case !sub.Filter.Passes(m.Kind, m.Headers), once && a.delivered > 1, a.delivered == 1 && e.fired.isSecond(q, sub, a, info.Timestamp):
		e.acks.send(&ack{reply: a.Reply, sign: signAck, until: a.lease, done: func(bool) { finished() }})
	case once: // it counts as handed out once its acknowledgment is confirmed
		e.acks.send(&ack{reply: a.Reply, sign: signAck, until: a.lease, done: func(confirmed bool) {
			if !confirmed {
				finished()
				return
			}
			e.runInBackground(func(ctx context.Context) {
				defer finished()
				d := a.held(q, sub, b, e.clock.now())
				a.lease = math.MaxInt64                                        // no other process gets it
				_ = e.storeOutcome(ctx, d, d.meta, posthaste.OutcomeHandedOut) // it is handed out even if this fails
				e.buffers.put(b, a)
			})
		}})
	case a.delivered > 1 && q.Options.Ordered:
		finished()
		e.runInBackground(func(ctx context.Context) { e.restoreOrdered(ctx, q, sub, b, a) })
	case a.delivered > 1:
		finished() // a claim does not wait for it
		e.runInBackground(func(ctx context.Context) { e.continueLost(ctx, q, sub, b, a) })
	default:
		e.buffers.put(b, a)
		finished()
	}
}

// sourceOf returns the queue and the subscription of a buffer. The latter is nil if one of them was
// dropped, even if another one has its name now.
func (e *Engine) sourceOf(b *buffer) (*queue, *subscription) {
	q := e.queues.known(b.queue)
	if q == nil || q.stream != b.stream {
		return q, nil
	}
	if sub := q.subscription(b.subscription); sub != nil && sub.CreatedAt.Equal(b.since) {
		return q, sub
	}
	return q, nil
}

// continueLost handles a redelivery: the delivery before it was lost, or its entry was continued and not
// acknowledged. The message does not run from this entry but from a copy, so that a late acknowledgment
// of the earlier delivery cannot end the next attempt.
func (e *Engine) continueLost(ctx context.Context, q *queue, sub *subscription, b *buffer, a *arrival) {
	d := a.held(q, sub, b, e.clock.now())
	if followed, err := e.endFollowed(ctx, d); err != nil || followed {
		return
	}
	cancelled, err := e.wasCancelled(ctx, d)
	if err != nil || !cancelled && e.holding.isWithheld(q, d.seq) {
		return
	}
	d.note, d.cancelled = e.readNote(ctx, d), cancelled
	// After an error, the server redelivers it again.
	if _, err := e.settleByEntry(ctx, d, posthaste.Settlement{Outcome: posthaste.OutcomeLost, Error: "its holder is gone"}); err == nil {
		e.rescued.Add(1)
	}
}

// endFollowed reports whether the entry of a redelivery was continued, and acknowledges it then.
func (e *Engine) endFollowed(ctx context.Context, d *held) (bool, error) {
	record, err := e.lastOn(ctx, d.q.stream, followSubject(d.q, d.sub, d.meta, d.seq))
	if err != nil || record == nil {
		return false, err
	}
	e.removeNotes(ctx, d)
	_ = e.ackAndWait(ctx, d) // unconfirmed, it is redelivered and comes here again
	return true, nil
}

// buryForeign makes a dead letter of a message that Posthaste did not send, so that it is not redelivered
// forever.
func (e *Engine) buryForeign(ctx context.Context, q *queue, sub *subscription, a *arrival, cause error) {
	info, err := a.Metadata()
	if err != nil {
		return
	}
	number, err := e.ids.take(ctx, 1)
	if err != nil {
		return
	}
	d := &held{q: q, sub: sub, body: a.Data, reply: a.Reply, seq: info.Sequence.Stream, claimedAt: e.clock.now(), lease: a.lease,
		// Each delivery of the entry makes another message of it, so that the entry stands for itself.
		meta: &meta{ID: messageID(number, q.No), At: micros(info.Timestamp), Type: posthaste.ContentTypeBytes, From: info.Sequence.Stream}}
	_, _ = e.settleByEntry(ctx, d, posthaste.Settlement{Outcome: posthaste.OutcomeDead, Error: cause.Error()})
}
