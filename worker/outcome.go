package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// settleMost bounds the settlements of one Settle.
const settleMost = 4096

// outcome is a settlement on its way to the store, with what log and telemetry need to
// report it.
type outcome struct {
	posthaste.Settlement
	seg     *segment
	message posthaste.MessageID
	attempt int
	kind    string
	wait    time.Duration // from when the message was due to the start of its handler
	cause   error
	once    bool   // at-most-once: the claim has settled it
	key     string // of an ordered queue, whose outcomes are recorded in sequence
	closes  bool   // the key is closed until this is on record
	trace   posthaste.Trace
	batch   *batch // of a call for many; nil if events go nowhere
}

// batch collects what an EventBatch reports about one call for many messages.
type batch struct {
	route         *route
	count, failed int
	left          int // unsettled messages
	claim, took   time.Duration
	ended         time.Duration
}

// settled notes one of its messages, and reports the batch after the last one.
func (b *batch) settled(report *reporter, done bool) {
	if b == nil {
		return
	}
	if !done {
		b.failed++
	}
	if b.left--; b.left > 0 {
		return
	}
	settle := now() - b.ended
	report.tell(posthaste.Event{Kind: posthaste.EventBatch, Queue: b.route.ref.Queue, Subscription: b.route.ref.Subscription, Count: b.count, Failed: b.failed,
		Claim: b.claim, Duration: b.took, Settle: settle, Total: b.claim + b.took + settle})
}

// returned reports whether the delivery is handed back without an attempt.
func (o *outcome) returned() bool {
	return o.Outcome == posthaste.OutcomeReleased || o.Outcome == posthaste.OutcomeSetAside
}

// refusable reports whether the store may refuse the outcome for its content.
func (o *outcome) refusable() bool { return len(o.Receipt) > 0 || len(o.Terms) > 0 }

// holdsUp reports whether later outcomes of its key must not be settled by the same call.
func (o *outcome) holdsUp() bool { return o.key != "" && o.refusable() }

// traced reports the end of a settle that was sent at began to the delivery's trace.
func (o *outcome) traced(began time.Time, became posthaste.Outcome, err error) {
	if o.trace != nil {
		o.trace.Settled(began, became, err)
	}
}

func (o *outcome) attrs() []any {
	return []any{slog.String("queue", o.seg.route.ref.Queue), slog.Any("message", o.message), slog.Any("delivery", o.Delivery),
		slog.Int("attempt", o.attempt), slog.String("outcome", string(o.Outcome))}
}

// errNotStarted is the result of a message whose handler was not called.
var errNotStarted = errors.New("the message was not started because the worker's lease had ended, or it was cancelled")

// judge returns the outcome of a delivery whose handler returned err.
func judge(d *posthaste.RawDelivery, seg *segment, err error, took time.Duration) outcome {
	o := outcome{seg: seg, message: d.MessageID, attempt: d.Attempt, kind: d.Kind, once: d.AtMostOnce}
	o.Delivery, o.Duration = d.ID, took
	if err == nil {
		o.Outcome = posthaste.OutcomeDone
		return o
	}
	if err == errNotStarted { //nolint:errorlint // it is never wrapped
		o.Outcome = posthaste.OutcomeReleased
		return o
	}
	if err == errNoHandler { //nolint:errorlint // it is never wrapped
		o.Outcome = posthaste.OutcomeSetAside
		return o
	}
	o.cause = err
	if after, ok := posthaste.SnoozeDelay(err); ok && !posthaste.IsPermanent(err) {
		o.Outcome, o.RetryAfter = posthaste.OutcomeReleased, after
		return o
	}
	o.Outcome = posthaste.OutcomeRetried
	o.Error = errorText(err)
	if d.Timeout > 0 && took >= d.Timeout && errors.Is(err, context.DeadlineExceeded) {
		o.Error = posthaste.ErrorText(fmt.Sprintf("timed out after %s: %s", d.Timeout, o.Error))
	}
	if posthaste.IsPermanent(err) {
		o.Outcome = posthaste.OutcomeDead
	} else if after, ok := posthaste.RetryDelay(err); ok {
		o.RetryAfter = max(after, time.Millisecond)
	} else {
		o.RetryAfter = seg.route.retryDelay(d, err)
	}
	return o
}

// released returns the outcome that hands back a message that has not started.
func released(seg *segment, d *posthaste.RawDelivery) outcome {
	o := outcome{seg: seg, message: d.MessageID, attempt: d.Attempt}
	o.Delivery, o.Outcome = d.ID, posthaste.OutcomeReleased
	return o
}

// releasedInOrder is released for the single message of seg, whose key is closed.
func releasedInOrder(seg *segment) outcome {
	o := released(seg, &seg.items[0])
	o.key, o.closes = seg.items[0].Key, true
	return o
}

// cancelledText returns the text of an error of a handler whose context ended because its message
// was cancelled.
func cancelledText(err error) string {
	if err == context.Canceled { //nolint:errorlint // with no text of its own
		return posthaste.ErrCancelled.Error()
	}
	return posthaste.ErrorText(posthaste.ErrCancelled.Error() + ": " + err.Error())
}

// errorText returns err's text as the store can keep it. It is never empty.
func errorText(err error) string {
	text := err.Error()
	if strings.TrimSpace(text) == "" {
		return fmt.Sprintf("error of type %T without a text", err)
	}
	return posthaste.ErrorText(text)
}
