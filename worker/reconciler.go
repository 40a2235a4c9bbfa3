package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/posthaste-mq/posthaste"
)

const (
	reconcileTimeout = 10 * time.Second
	reconcileEvery   = 30 * time.Second
	// reconcileSoon is how long after an error the comparison is made: long
	// enough for what was on its way to be repeated.
	reconcileSoon = 500 * time.Millisecond
)

// reconciler compares what the store says this worker holds with what it
// knows, and releases the rest: the deliveries of answers that got lost. It
// does so after errors and, while anything is claimed, each 30 s.
type reconciler struct {
	rt    *runtime
	wake  chan struct{}
	retry backoff
}

func newReconciler(rt *runtime) *reconciler {
	return &reconciler{rt: rt, wake: make(chan struct{}, 1), retry: backoff{rt: rt, task: "reconcile"}}
}

// poke asks for a comparison soon.
func (r *reconciler) poke() { token(r.wake) }

func (r *reconciler) run(ctx context.Context) {
	compared := int64(0)
	for {
		timer := time.NewTimer(reconcileEvery)
		poked := false
		select {
		case <-timer.C:
		case <-r.wake:
			poked = pause(ctx, reconcileSoon)
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
		worker, upTo, known := r.rt.held.memory()
		if worker == 0 || !poked && upTo == compared {
			continue
		}
		err := r.compare(ctx, worker, upTo, known)
		if posthaste.CodeOf(err) == posthaste.WorkerLost {
			continue // nothing is held by it any more; the heartbeat registers anew
		}
		if err != nil {
			if r.retry.failed(ctx, err) {
				r.poke()
			}
			continue
		}
		r.retry.worked()
		compared = upTo
	}
}

// compare releases what the store has handed out in claims up to upTo and is
// not known. What was known when upTo was taken and is settled since is not
// listed, or its release is refused: neither does harm.
func (r *reconciler) compare(ctx context.Context, worker posthaste.WorkerID, upTo int64, known map[posthaste.DeliveryID]struct{}) error {
	return bounded(ctx, reconcileTimeout, func(ctx context.Context) error {
		ids, err := r.rt.engine.Unsettled(ctx, worker, upTo)
		if err != nil {
			return err
		}
		var release []posthaste.Settlement
		for _, id := range ids {
			if _, ok := known[id]; !ok {
				release = append(release, posthaste.Settlement{Delivery: id, Outcome: posthaste.Released})
			}
		}
		if len(release) == 0 {
			return nil
		}
		for rest := release; len(rest) > 0; {
			n := min(len(rest), settleMost)
			if _, err := r.rt.engine.Settle(ctx, rest[:n]); err != nil {
				return err
			}
			rest = rest[n:]
		}
		r.rt.log.Info("released what lost answers had handed out to this worker", slog.Int("deliveries", len(release)))
		return nil
	})
}
