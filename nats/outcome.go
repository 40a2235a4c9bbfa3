package nats

import (
	"context"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
)

// outcomeSubject is where the outcome of a message in a queue with a retention is kept.
func (e *Engine) outcomeSubject(id posthaste.MessageID, subscription string) string {
	return e.prefix + ".log.out." + id.String() + "." + token(subscription)
}

// keepOutcome stores how a message ended, if the queue has a retention, before the message is
// acknowledged: after a crash in between, a message that is delivered again has an outcome already.
func (e *Engine) keepOutcome(ctx context.Context, d *held, end *meta, outcome posthaste.Outcome) error {
	if d.q.Options.Retention == 0 || !over(outcome) || outcome == posthaste.OutcomeDead {
		return nil
	}
	body := d.body
	if !d.q.Options.RetainPayload {
		body = nil
	}
	m := end.encoded(e.outcomeSubject(end.ID, d.sub.Name), body)
	m.Header.Set(headerOutcome, string(outcome))
	m.Header.Set(headerTTL, strconv.FormatInt(int64(max(d.q.Options.Retention, time.Second)/time.Second), 10)+"s")
	return e.store(ctx, d.q, []*natsgo.Msg{m})
}

// headerOutcome has the outcome of a message that ended.
const headerOutcome = "Posthaste-Outcome"
