package memory

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/jsoncheck"
)

// Settle implements [posthaste.Engine].
func (e *Engine) Settle(ctx context.Context, settlements []posthaste.Settlement) ([]posthaste.SettleResult, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range settlements {
		if d := e.delivery(s.Delivery); d != nil && d.q.options.Mode == posthaste.AtMostOnce {
			return nil, &posthaste.Error{Code: posthaste.CodeConflict, Field: "mode", Message: "the queue is an at-most-once queue: its deliveries are settled as soon as they are handed out"}
		}
	}
	results := make([]posthaste.SettleResult, len(settlements))
	for i, s := range settlements {
		results[i].Delivery = s.Delivery
		if err := jsoncheck.Settlement(&s); err != nil {
			results[i].Err = err
		} else if d := e.delivery(s.Delivery); d != nil && !d.settled {
			results[i].Settled = true
			results[i].Outcome, results[i].DueAt = e.end(d, s)
			if w := e.workers[d.worker]; w != nil {
				if w.open[d.number]--; w.open[d.number] == 0 {
					delete(w.claims, d.number)
					delete(w.open, d.number)
				}
			}
		}
	}
	return results, nil
}

// comesAgain counts a delivery whose message is redelivered.
func (q *queue) comesAgain(outcome posthaste.Outcome) {
	switch outcome {
	case posthaste.OutcomeLost:
		q.info.Lost++
	case posthaste.OutcomeRetried:
		q.info.Retried++
	}
}

// end settles d and stores the consequence: a new entry, a dead letter, or nothing.
func (e *Engine) end(d *delivery, s posthaste.Settlement) (outcome posthaste.Outcome, dueAt time.Time) {
	d.settled = true
	d.q.info.InFlight--
	e.flowed = true
	now := e.now()
	if len(d.m.Terms) == 0 {
		d.m.Terms = slices.Clone(s.Terms)
	}
	next := *d.entry
	next.dueAt, next.asideAt = now, time.Time{}
	o := d.attempts()
	switch outcome = s.Outcome; outcome {
	case posthaste.OutcomeDone:
		d.q.info.Done++
	case posthaste.OutcomeLost:
		if !d.advanced() {
			if next.losses++; d.alone {
				next.lostsAlone++
			}
		}
		next.attempt++
	case posthaste.OutcomeRetried:
		next.failures++
		next.attempt++
		wait := min(o.Backoff.Max, o.Backoff.Base<<min(d.failures, 30))
		next.dueAt = now.Add(rand.N(wait + 1))
		if s.RetryAfter > 0 {
			next.dueAt = now.Add(s.RetryAfter)
		}
	case posthaste.OutcomeReleased:
		next.dueAt = now.Add(s.RetryAfter)
	case posthaste.OutcomeSetAside:
		outcome, next.asideAt = posthaste.OutcomeReleased, now
	}
	if d.cancelled && outcome != posthaste.OutcomeDone {
		outcome = posthaste.OutcomeCancelled
	}
	if (outcome == posthaste.OutcomeRetried || outcome == posthaste.OutcomeLost) && next.failures+next.lostsAlone >= o.MaxAttempts {
		outcome = posthaste.OutcomeDead
	}
	next.story = d.storyWith(d.endAttempt(s, outcome, now))
	if d.over(outcome, now) {
		return outcome, time.Time{}
	}
	d.q.comesAgain(outcome)
	d.m.state, d.m.dueAt = posthaste.StateRetrying, next.dueAt
	if next.attempt == 1 { // it was released, and has not failed before
		d.m.state = posthaste.StateReady
		if next.dueAt.After(now) {
			d.m.state = posthaste.StateScheduled
		}
	}
	e.append(d.q, &next, true)
	return outcome, next.dueAt
}

// over sets the state of a message that is not delivered again, and reports whether it is one.
func (d *delivery) over(outcome posthaste.Outcome, now time.Time) bool {
	switch outcome {
	case posthaste.OutcomeDone:
		d.m.state = posthaste.StateDone
	case posthaste.OutcomeCancelled:
		d.m.state = posthaste.StateCancelled
	case posthaste.OutcomeDead:
		d.m.state, d.m.diedAt = posthaste.StateDead, now
		d.q.info.Dead++
	default:
		return false
	}
	return true
}

// attempts returns the options of the attempts of the message.
func (d *delivery) attempts() posthaste.KindOptions {
	return d.q.options.Attempts(d.m.Kind, posthaste.KindOptions{MaxAttempts: d.m.MaxAttempts, Timeout: d.m.Timeout, Backoff: d.m.Backoff})
}

// endAttempt completes the row that hand wrote for d, and returns it if it is still there.
func (d *delivery) endAttempt(s posthaste.Settlement, outcome posthaste.Outcome, now time.Time) *posthaste.Attempt {
	a := d.attemptRow()
	if a == nil {
		return nil
	}
	a.Outcome, a.EndedAt, a.Receipt = outcome, now, s.Receipt
	if outcome != posthaste.OutcomeDone && outcome != posthaste.OutcomeReleased {
		a.Error = posthaste.ErrorText(s.Error)
	}
	a.DurationMS = float64(s.Duration) / 1e6
	return a
}

// storyWith returns the story with an attempt that ended. A released one is in it only if it
// has notes.
func (d *delivery) storyWith(a *posthaste.Attempt) []posthaste.Attempt {
	if a == nil || a.Outcome == posthaste.OutcomeReleased && a.Checkpoint == nil && a.Progress == 0 && a.Log == "" {
		return d.story
	}
	story := posthaste.WithAttempt(d.story, *a)
	for i := range d.m.attempts {
		d.m.attempts[i].Checkpoint = nil
	}
	a.Checkpoint = story[len(story)-1].Checkpoint
	return story
}

// advanced reports whether the attempt has changed the checkpoint.
func (d *delivery) advanced() bool {
	a := d.attemptRow()
	return a != nil && a.Checkpoint != nil && (len(d.story) == 0 || !bytes.Equal(a.Checkpoint, d.story[len(d.story)-1].Checkpoint))
}

// attemptRow finds the row that hand wrote for d.
func (d *delivery) attemptRow() *posthaste.Attempt {
	for i := len(d.m.attempts) - 1; i >= 0; i-- {
		if a := &d.m.attempts[i]; a.Attempt == d.attempt && a.ClaimedAt.Equal(d.claimedAt) {
			return a
		}
	}
	return nil
}
