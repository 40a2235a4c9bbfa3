package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// outcome is a settlement on its way, with what is needed to tell of it.
type outcome struct {
	posthaste.Settlement
	seg     *segment
	message posthaste.MessageID
	attempt int
	cause   error
	once    bool   // handing it out has settled it
	key     string // of an ordered queue, whose outcomes are recorded in their order
	closes  bool   // the key is closed until this is on record
	trace   posthaste.Trace
	batch   *batch // of a call for many; nil if nobody wants to know
}

// batch is what is told of a call for many once all of its messages are settled.
type batch struct {
	sub           *subscription
	count, failed int
	left          int // not settled
	claim, took   time.Duration
	ended         time.Duration
}

// settled notes one of its messages.
func (b *batch) settled(rt *runtime, done bool) {
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
	rt.tell(posthaste.Event{Kind: posthaste.EventBatch, Queue: b.sub.ref.Queue, Subscription: b.sub.ref.Subscription, Count: b.count, Failed: b.failed,
		Claim: b.claim, Duration: b.took, Settle: settle, Total: b.claim + b.took + settle})
}

// refusable says that the store may refuse the outcome for what it says.
func (o *outcome) refusable() bool { return len(o.Receipt) > 0 || len(o.Terms) > 0 }

// holdsUp says that what follows of its key is not settled by the same call.
func (o *outcome) holdsUp() bool { return o.key != "" && o.refusable() }

// errNotStarted is what became of a delivery that no handler was given.
var errNotStarted = errors.New("it was not started, for the worker's lease was over")

// judge says how a delivery ended that returned err.
func judge(d *posthaste.RawDelivery, seg *segment, err error, took time.Duration) outcome {
	o := outcome{seg: seg, message: d.MessageID, attempt: d.Attempt, once: d.AtMostOnce}
	o.Delivery, o.Duration = d.ID, took
	if err == nil {
		o.Outcome = posthaste.Done
		return o
	}
	if err == errNotStarted { //nolint:errorlint // nobody else makes it
		o.Outcome = posthaste.Released
		return o
	}
	o.cause = err
	if after, ok := posthaste.SnoozeDelay(err); ok && !posthaste.IsPermanent(err) {
		o.Outcome, o.RetryAfter = posthaste.Released, after
		return o
	}
	o.Outcome = posthaste.Retried
	o.Error = errorText(err)
	if d.Timeout > 0 && took >= d.Timeout && errors.Is(err, context.DeadlineExceeded) {
		o.Error = posthaste.ErrorText(fmt.Sprintf("timed out after %s: %s", d.Timeout, o.Error))
	}
	if posthaste.IsPermanent(err) {
		o.Outcome = posthaste.Dead
	} else if after, ok := posthaste.RetryDelay(err); ok {
		o.RetryAfter = max(after, time.Millisecond)
	}
	return o
}

// errorText is err's text as the store can keep it, and never empty.
func errorText(err error) string {
	text := err.Error()
	if strings.TrimSpace(text) == "" {
		return fmt.Sprintf("error of type %T without a text", err)
	}
	return posthaste.ErrorText(text)
}
