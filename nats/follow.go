package nats

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
)

// An entry is continued by another one: a retry, a copy (of a message that was released or lost), or a
// dead letter. That entry is stored in one batch with a record of the entry that it continues. So an entry
// is continued once, although several processes may try: its holder, and, after a crash or an unconfirmed
// acknowledgment, the process to which the server redelivers it. If an entry is stored twice (see fired),
// the holders of both may try.

// followedFor is how long these records last. An entry that is redelivered later than that may be
// continued twice.
const followedFor = 24 * time.Hour

// storyEnds is how many attempts the story of a message keeps at its beginning, and at its end.
const storyEnds = 10

// settleByEntry settles a delivery for which something must be stored: its outcome, or the entry that
// continues it. It acknowledges the delivery after that. For a subscription that was removed it stores
// nothing: that would stay in the stream, which has no consumer for it.
func (e *Engine) settleByEntry(ctx context.Context, d *held, s posthaste.Settlement) (r posthaste.SettleResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.holding.leaseOf(d)-uptime())
	defer cancel()
	if q := e.queues.known(d.q.Name); q != nil && q.stream == d.q.stream {
		if sub := q.subscription(d.sub.Name); sub == nil || !sub.CreatedAt.Equal(d.sub.CreatedAt) {
			return r, errUnsubscribed
		}
	}
	r = posthaste.SettleResult{Delivery: d.id, Settled: true}
	next, outcome, due := e.nextAttempt(d, s)
	r.Outcome, r.DueAt = outcome, due
	if err := e.storeOutcome(ctx, d, next, outcome); err != nil {
		return r, err
	}
	if d.q.Options.Ordered && !isFinal(outcome) {
		return r, e.giveBackInOrder(ctx, d, next, max(0, due.Sub(e.clock.now())))
	}
	if entry := e.followingEntry(d, next, outcome, due); entry != nil {
		err := e.store(ctx, d.q, []*natsgo.Msg{recordEntry(followSubject(d.q, d.sub, d.meta, d.seq), sentRecord{Sent: []posthaste.Sent{{ID: d.meta.ID}}}, followedFor), entry})
		if err != nil && !errors.Is(err, errExists) {
			return r, err
		}
	}
	e.removeNotes(ctx, d)
	switch err := e.ackAndWait(ctx, d); {
	case isFinal(outcome) && outcome != posthaste.OutcomeDead:
		return r, err
	default: // the next entry is stored, and a redelivery of this one only acknowledges it
		return r, nil
	}
}

// isFinal reports whether a message is not delivered again after an outcome.
func isFinal(outcome posthaste.Outcome) bool {
	switch outcome {
	case posthaste.OutcomeReleased, posthaste.OutcomeRetried, posthaste.OutcomeLost:
		return false
	}
	return true
}

// followSubject is the subject of the record that the entry was continued. It names the entry by the one
// before it, and the first one by its message, because a schedule can be stored twice when it fires. An
// ordered queue has no schedules, and its entries are redelivered, so they are named by themselves. The
// time when the subscription was made is part of it: another one of that name may receive the entry
// once more.
func followSubject(q *queue, sub *subscription, m *meta, seq uint64) string {
	entry := "m" + m.ID.String()
	switch {
	case q.Options.Ordered:
		entry = strconv.FormatUint(seq, 10)
	case m.From != 0:
		entry = strconv.FormatUint(m.From, 10)
	}
	return q.subjects.under("i", "n", subjectToken(sub.Name), strconv.FormatInt(micros(sub.CreatedAt), 36), entry)
}

// nextAttempt returns the message after a settlement, the outcome, and when the next attempt may start,
// zero for a final outcome. It has the rules of package memory (delivery end).
func (e *Engine) nextAttempt(d *held, s posthaste.Settlement) (*meta, posthaste.Outcome, time.Time) {
	next, now := *d.meta, e.clock.now()
	due, outcome := now, s.Outcome
	o := e.options(d).Attempts(next.Kind, next.own())
	if len(next.Terms) == 0 {
		next.Terms = slices.Clone(s.Terms)
	}
	switch outcome {
	case posthaste.OutcomeLost:
		if !d.advanced(e.holding.attempt(d, "").Checkpoint) {
			if next.Losses++; d.alone {
				next.LostAlone++
			}
		}
		next.Attempt = next.attempt() + 1
	case posthaste.OutcomeRetried:
		wait := min(o.Backoff.Max, o.Backoff.Base<<min(next.Failures, 30))
		next.Failures++
		next.Attempt = next.attempt() + 1
		due = now.Add(rand.N(wait + 1))
		if s.RetryAfter > 0 {
			due = now.Add(s.RetryAfter)
		}
	case posthaste.OutcomeReleased:
		due = now.Add(s.RetryAfter)
	case posthaste.OutcomeSetAside:
		outcome, due = posthaste.OutcomeReleased, now.Add(posthaste.SetAsideWait)
	}
	if e.holding.isCancelled(d) && outcome != posthaste.OutcomeDone {
		outcome = posthaste.OutcomeCancelled
	}
	if (outcome == posthaste.OutcomeRetried || outcome == posthaste.OutcomeLost) && next.Failures+next.LostAlone >= o.MaxAttempts {
		outcome = posthaste.OutcomeDead
	}
	next.Story = e.story(d, s, outcome, now)
	if isFinal(outcome) {
		due = time.Time{}
	}
	if outcome == posthaste.OutcomeDead {
		next.DiedAt, next.Error = micros(now), posthaste.ErrorText(s.Error)
	}
	next.From, next.Since = d.seq, micros(d.meta.since())
	e.shortenStory(&next, d.body)
	return &next, outcome, due
}

// options returns the current options of the queue of a delivery.
func (e *Engine) options(d *held) *posthaste.QueueOptions {
	if q := e.queues.known(d.q.Name); q != nil {
		return &q.Options
	}
	return &d.q.Options
}

// story returns the attempts of a message with the one that ends.
func (e *Engine) story(d *held, s posthaste.Settlement, outcome posthaste.Outcome, now time.Time) []posthaste.Attempt {
	a := e.holding.attempt(d, e.workerName(d))
	a.Outcome, a.EndedAt, a.Receipt, a.DurationMS = outcome, now, s.Receipt, float64(s.Duration)/1e6
	if outcome != posthaste.OutcomeDone && outcome != posthaste.OutcomeReleased {
		a.Error = posthaste.ErrorText(s.Error)
	}
	if outcome == posthaste.OutcomeReleased && a.Checkpoint == nil && a.Progress == 0 && a.Log == "" {
		return d.meta.Story
	}
	all := posthaste.WithAttempt(d.meta.Story, a)
	if len(all) > 2*storyEnds { // headers are bounded
		all = slices.Delete(all, storyEnds, len(all)-storyEnds)
	}
	return all
}

// advanced reports whether the attempt has changed the checkpoint.
func (d *held) advanced(checkpoint []byte) bool {
	story := d.meta.Story
	return checkpoint != nil && (len(story) == 0 || !bytes.Equal(checkpoint, story[len(story)-1].Checkpoint))
}

// followingEntry returns the entry that continues that of a delivery: the retry or copy, which may be
// scheduled, or the dead letter; nil if the outcome needs none.
func (e *Engine) followingEntry(d *held, next *meta, outcome posthaste.Outcome, due time.Time) *natsgo.Msg {
	sub := subjectToken(d.sub.Name)
	switch {
	case outcome == posthaste.OutcomeDead:
		return next.encoded(d.q.subjects.under("d", sub, next.ID.String()), d.body)
	case isFinal(outcome):
		return nil
	}
	target := d.q.subjects.under("r", sub, strconv.Itoa(d.lane))
	if !due.After(e.clock.now().Add(dueSoon)) {
		return next.encoded(target, d.body)
	}
	next.Due = micros(due)
	return asSchedule(next.encoded(d.q.subjects.under("s", next.ID.String(), sub), d.body), target, due)
}

// ackAndWait acknowledges a delivery. It returns an error if the server does not confirm that before the
// lease ends.
func (e *Engine) ackAndWait(ctx context.Context, d *held) error {
	return e.signAndWait(ctx, d, signAck)
}

func (e *Engine) signAndWait(ctx context.Context, d *held, sign string) error {
	done := make(chan bool, 1)
	e.acks.send(&ack{reply: d.reply, sign: sign, until: e.holding.leaseOf(d), done: func(confirmed bool) { done <- confirmed }})
	select {
	case confirmed := <-done:
		if confirmed {
			return nil
		}
		return errUnconfirmed
	case <-ctx.Done():
		return errUnconfirmed
	}
}

// nak lets the server hand out the entry again after a time.
func (e *Engine) nak(ctx context.Context, d *held, after time.Duration) error {
	sign := signNak
	if after > 0 {
		sign += ` {"delay": ` + strconv.FormatInt(int64(after), 10) + `}`
	}
	return e.signAndWait(ctx, d, sign)
}

// expire ends a message that is too old to be handed out.
func (e *Engine) expire(ctx context.Context, d *held, outcome posthaste.Outcome) {
	now := e.clock.now()
	next := *d.meta
	next.Story = posthaste.WithAttempt(next.Story, posthaste.Attempt{Attempt: next.attempt(), Outcome: outcome, ClaimedAt: now, EndedAt: now})
	// After an error, the server redelivers the message, and a claim finds again that it is too old.
	if err := e.storeOutcome(ctx, d, &next, outcome); err == nil {
		e.removeNotes(ctx, d)
		_ = e.ackAndWait(ctx, d)
	}
}

// settleLost settles a delivery as lost: its worker is gone or its receiver's lease has ended, and this
// process still has its lease at the server. It reports whether it did.
func (e *Engine) settleLost(ctx context.Context, d *held) bool {
	if !e.holding.beginSettlingLost(d) {
		return false
	}
	_, err := e.settleByEntry(ctx, d, posthaste.Settlement{Outcome: posthaste.OutcomeLost, Error: "its holder is gone"})
	if err != nil && !endedDelivery(err) {
		e.holding.abandonSettling(d)
		return false
	}
	e.holding.remove(d)
	return err == nil
}
