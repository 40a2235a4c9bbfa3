package nats

import (
	"context"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
)

// outcomeSubject is the subject of the log on which the outcome of a message is stored.
func (e *Engine) outcomeSubject(id posthaste.MessageID, subscription string) string {
	return e.prefix + ".log.out." + id.String() + "." + subjectToken(subscription)
}

// cancelledFor is how long cancelled, discarded and expired messages can be looked up at least, because there
// are few of them.
const cancelledFor = 24 * time.Hour

// storeOutcome stores how a message ended, if the queue has a retention, or if the message was cancelled or
// has expired. The caller acknowledges the message after that: after a crash in between, the message is
// redelivered and has an outcome already.
func (e *Engine) storeOutcome(ctx context.Context, d *held, end *meta, outcome posthaste.Outcome) error {
	rare := outcome == posthaste.OutcomeCancelled || outcome == posthaste.OutcomeExpired
	if !isFinal(outcome) || outcome == posthaste.OutcomeDead || d.q.Options.Retention == 0 && !rare {
		return nil
	}
	if err := e.storeEnd(ctx, d.q, d.sub.Name, end, d.body, posthaste.State(outcome)); err != nil {
		return err
	}
	if outcome == posthaste.OutcomeCancelled && len(d.q.Subscriptions) == 1 {
		e.freeDedupeKey(ctx, d.q, end)
	}
	return nil
}

// storeEnd stores how a message ended for a subscription.
func (e *Engine) storeEnd(ctx context.Context, q *queue, subscription string, end *meta, body []byte, state posthaste.State) error {
	ttl := max(q.Options.Retention, time.Second)
	if state == posthaste.StateCancelled || state == posthaste.StateDiscarded || state == posthaste.StateExpired {
		ttl = max(ttl, cancelledFor)
	}
	if !q.Options.RetainPayload {
		body = nil
	}
	m := end.encoded(e.outcomeSubject(end.ID, subscription), body)
	m.Header.Set(headerOutcome, string(state))
	m.Header.Set(headerTTL, strconv.FormatInt(int64(ttl/time.Second), 10)+"s")
	return e.store(ctx, q, []*natsgo.Msg{m})
}

// headerOutcome is the header with the state of a message that ended.
const headerOutcome = "Posthaste-Outcome"
