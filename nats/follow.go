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

// What follows an entry: a retry, a copy, or a dead letter. It is stored in one batch with a record
// of the entry's sequence, so that an entry is continued once, although several processes may try: its holder,
// and after a crash or an unconfirmed acknowledgment the process that gets its second delivery.

// followedFor is how long these records last. An entry that is handed out again later may be continued
// twice.
const followedFor = 24 * time.Hour

// storyEnds is how many attempts at its begin and at its end the story of a message keeps.
const storyEnds = 10

// continues settles a delivery otherwise than by a plain acknowledgment.
func (e *Engine) continues(ctx context.Context, d *held, s posthaste.Settlement) (r posthaste.SettleResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.holding.leaseOf(d)-uptime())
	defer cancel()
	r = posthaste.SettleResult{Delivery: d.id, Settled: true}
	next, outcome, due := e.next(d, s)
	r.Outcome, r.DueAt = outcome, due
	if err := e.keepOutcome(ctx, d, next, outcome); err != nil {
		return r, err
	}
	if d.q.Options.Ordered && !over(outcome) {
		return r, e.again(ctx, d, next, max(0, due.Sub(e.clock.now())))
	}
	if entry := e.following(d, next, outcome, due); entry != nil {
		err := e.store(ctx, d.q, []*natsgo.Msg{recorded(d.followedBy(), record{Sent: []posthaste.Sent{{ID: d.meta.ID}}}, followedFor), entry})
		if err != nil && !errors.Is(err, errExists) {
			return r, err
		}
	}
	e.unnote(ctx, d)
	switch err := e.acked(ctx, d); {
	case over(outcome) && outcome != posthaste.OutcomeDead:
		return r, err
	default: // what follows is stored, and a second delivery changes nothing
		return r, nil
	}
}

// over reports whether a message is not delivered again after an outcome.
func over(outcome posthaste.Outcome) bool {
	switch outcome {
	case posthaste.OutcomeReleased, posthaste.OutcomeRetried, posthaste.OutcomeLost:
		return false
	}
	return true
}

// followedBy is the subject of the record of what follows an entry.
func (d *held) followedBy() string {
	return d.q.subjects.under("i", "n", token(d.sub.Name), strconv.FormatUint(d.seq, 10))
}

// next returns the message after a settlement, the outcome, and when the next attempt may start.
func (e *Engine) next(d *held, s posthaste.Settlement) (*meta, posthaste.Outcome, time.Time) {
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
	if over(outcome) {
		due = time.Time{}
	}
	if outcome == posthaste.OutcomeDead {
		next.DiedAt, next.Error = micros(now), posthaste.ErrorText(s.Error)
	}
	next.From, next.Since = d.seq, micros(d.meta.since())
	e.fits(&next, d.body)
	return &next, outcome, due
}

// options returns the options of the queue of a delivery as they are now.
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

// following returns the entry that continues a delivery: the retry, which may be scheduled, or the
// dead letter; nil if the message is over.
func (e *Engine) following(d *held, next *meta, outcome posthaste.Outcome, due time.Time) *natsgo.Msg {
	sub := token(d.sub.Name)
	switch {
	case outcome == posthaste.OutcomeDead:
		return next.encoded(d.q.subjects.under("d", sub, next.ID.String()), d.body)
	case over(outcome):
		return nil
	}
	target := d.q.subjects.under("r", sub, strconv.Itoa(d.track))
	if !due.After(e.clock.now().Add(soon)) {
		return next.encoded(target, d.body)
	}
	next.Due = micros(due)
	return scheduled(next.encoded(d.q.subjects.under("s", next.ID.String(), sub), d.body), target, due)
}

// acked acknowledges a delivery, and returns an error if that is not confirmed within its lease.
func (e *Engine) acked(ctx context.Context, d *held) error {
	return e.signed(ctx, d, signAck)
}

func (e *Engine) signed(ctx context.Context, d *held, sign string) error {
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
	return e.signed(ctx, d, sign)
}

// ends ends a message that is not handed out.
func (e *Engine) ends(ctx context.Context, d *held, outcome posthaste.Outcome) {
	now := e.clock.now()
	next := *d.meta
	next.Story = posthaste.WithAttempt(next.Story, posthaste.Attempt{Attempt: next.attempt(), Outcome: outcome, ClaimedAt: now, EndedAt: now})
	// What fails here is repeated with the next delivery.
	if err := e.keepOutcome(ctx, d, &next, outcome); err == nil {
		e.unnote(ctx, d)
		_ = e.acked(ctx, d)
	}
}

// lose gives a delivery back whose holder is gone: its worker or its lease has ended, and this
// process still holds it at the server.
func (e *Engine) lose(ctx context.Context, d *held) bool {
	if !e.holding.beginLost(d) {
		return false
	}
	_, err := e.continues(ctx, d, posthaste.Settlement{Outcome: posthaste.OutcomeLost, Error: "its holder is gone"})
	if err != nil {
		e.holding.giveUp(d)
		return false
	}
	e.holding.remove(d)
	return true
}
