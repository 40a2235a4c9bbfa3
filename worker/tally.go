package worker

import (
	"errors"
	"log/slog"
	"math/bits"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// tally reports outcomes that are settled. It groups plain successes, so that telemetry
// costs little per message.
type tally struct {
	report *reporter
	stats  *stats
	groups map[tallyKey]*tallyGroup
	aside  map[asideKey]bool // the kinds whose messages were said to be set aside
}

// asideKey is a kind that the handlers of a route do not handle.
type asideKey struct {
	route *route
	kind  string
}

// asideKinds bounds the kinds that are told, because senders choose them.
const asideKinds = 1000

// tallyKey groups durations by powers of two, so that a group's mean represents each.
type tallyKey struct {
	route  *route
	bucket int
}

type tallyGroup struct {
	count int
	total time.Duration
}

// settled notes one settled outcome. It reports all but plain successes at once.
func (t *tally) settled(o *outcome, became posthaste.Outcome) {
	t.stats.settled(o, became)
	log := t.report.log
	if o.Outcome == posthaste.OutcomeDone {
		if t.report.debug {
			log.Debug("done", append(o.attrs(), slog.Duration("took", o.Duration))...)
		}
		if !t.report.quiet() {
			t.add(o)
		}
		return
	}
	if became == "" {
		became = o.Outcome
	}
	if o.Outcome == posthaste.OutcomeSetAside {
		t.setAside(o)
	}
	if o.returned() {
		if t.report.debug {
			log.Debug("released", o.attrs()...)
		}
	} else {
		logFailure(log, o, became)
	}
	t.report.tell(posthaste.Event{Kind: posthaste.EventSettled, Queue: o.seg.route.ref.Queue, Subscription: o.seg.route.ref.Subscription,
		Message: o.message, Delivery: o.Delivery, Attempt: o.attempt, Outcome: became, Count: 1, Duration: o.Duration, Err: o.cause})
}

// setAside logs the first message of a kind that is set aside.
func (t *tally) setAside(o *outcome) {
	key := asideKey{o.seg.route, o.kind}
	if t.aside[key] || len(t.aside) >= asideKinds {
		return
	}
	if t.aside == nil {
		t.aside = map[asideKey]bool{}
	}
	t.aside[key] = true
	ref := o.seg.route.ref
	t.report.log.Info("messages of this kind are set aside, because this worker has no handler for it; they wait for a worker that has one",
		slog.String("queue", ref.Queue), slog.String("subscription", ref.Subscription), slog.String("kind", o.kind), slog.Any("message", o.message))
}

func (t *tally) add(o *outcome) {
	key := tallyKey{o.seg.route, bits.Len64(uint64(max(0, o.Duration.Microseconds())))}
	g := t.groups[key]
	if g == nil {
		if t.groups == nil {
			t.groups = map[tallyKey]*tallyGroup{}
		}
		g = &tallyGroup{}
		t.groups[key] = g
	}
	g.count++
	g.total += o.Duration
}

// flush reports the groups. The Duration of an event is the mean of its Count successes.
func (t *tally) flush() {
	for key, g := range t.groups {
		if g.count > 0 {
			t.report.tell(posthaste.Event{Kind: posthaste.EventSettled, Queue: key.route.ref.Queue, Subscription: key.route.ref.Subscription,
				Outcome: posthaste.OutcomeDone, Count: g.count, Duration: g.total / time.Duration(g.count)})
			*g = tallyGroup{}
		}
	}
}

func logFailure(log *slog.Logger, o *outcome, became posthaste.Outcome) {
	attrs := append(o.attrs()[:4], slog.String("outcome", string(became)), slog.String("error", o.Error), slog.Duration("took", o.Duration))
	if o.kind != "" {
		attrs = append(attrs, slog.String("kind", o.kind))
	}
	var panicked *panicError
	if errors.As(o.cause, &panicked) && !panicked.told {
		panicked.told = true // once for all messages of a call
		attrs = append(attrs, slog.String("stack", string(panicked.stack)))
	}
	switch became {
	case posthaste.OutcomeDead:
		log.Error("a message failed and was dead-lettered", attrs...)
	case posthaste.OutcomeCancelled:
		log.Info("a message that was cancelled while it ran did not finish; it is not retried", attrs...)
	case posthaste.OutcomeFailed:
		log.Error("a message of an at-most-once queue failed; it is not retried", attrs...)
	default:
		log.Warn("an attempt failed and will be retried", attrs...)
	}
}
