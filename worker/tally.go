package worker

import (
	"errors"
	"log/slog"
	"math/bits"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// tally groups plain successes, so that telemetry costs little per message.
type tally struct {
	groups map[tallyKey]*tallyGroup
}

// tallyKey groups durations by powers of two, so that a group's mean stands for each.
type tallyKey struct {
	sub    *subscription
	bucket int
}

type tallyGroup struct {
	count int
	total time.Duration
}

// settled notes one settled outcome. What is no plain success is told at once.
func (t *tally) settled(rt *runtime, o *outcome, became posthaste.Outcome) {
	if o.Outcome == posthaste.Done {
		if rt.debug {
			rt.log.Debug("done", append(o.attrs(), slog.Duration("took", o.Duration))...)
		}
		if rt.quiet {
			return
		}
		key := tallyKey{o.seg.sub, bits.Len64(uint64(max(0, o.Duration.Microseconds())))}
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
		return
	}
	if became == "" {
		became = o.Outcome
	}
	if o.Outcome == posthaste.Released {
		if rt.debug {
			rt.log.Debug("handed back", o.attrs()...)
		}
	} else {
		logFailure(rt.log, o, became)
	}
	rt.tell(posthaste.Event{Kind: posthaste.EventSettled, Queue: o.seg.sub.ref.Queue, Subscription: o.seg.sub.ref.Subscription,
		Message: o.message, Delivery: o.Delivery, Attempt: o.attempt, Outcome: became, Count: 1, Duration: o.Duration, Err: o.cause})
}

// tell reports the groups: Duration is the mean of Count successes.
func (t *tally) tell(rt *runtime) {
	for key, g := range t.groups {
		if g.count > 0 {
			rt.tell(posthaste.Event{Kind: posthaste.EventSettled, Queue: key.sub.ref.Queue, Subscription: key.sub.ref.Subscription,
				Outcome: posthaste.Done, Count: g.count, Duration: g.total / time.Duration(g.count)})
			*g = tallyGroup{}
		}
	}
}

func logFailure(log *slog.Logger, o *outcome, became posthaste.Outcome) {
	attrs := append(o.attrs()[:4], slog.String("outcome", string(became)), slog.String("error", o.Error), slog.Duration("took", o.Duration))
	var panicked *panicError
	if errors.As(o.cause, &panicked) && !panicked.told {
		panicked.told = true // once for all messages of a call
		attrs = append(attrs, slog.String("stack", string(panicked.stack)))
	}
	if became == posthaste.Dead {
		log.Error("a message failed for good and is a dead letter now", attrs...)
		return
	}
	if became == posthaste.Failed {
		log.Error("a message failed and is not tried again, for its queue hands out at most once", attrs...)
		return
	}
	log.Warn("an attempt failed and will be repeated", attrs...)
}
