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
	// reconcileSoon is the wait between an error and the comparison. It leaves time for
	// the failed call to be retried.
	reconcileSoon = 500 * time.Millisecond
)

// reconciler compares the deliveries that the store has given to this worker with those
// that the worker knows, and releases the rest: they belong to replies that were lost. It
// does so after errors and, while anything is claimed, every 30 s.
type reconciler struct {
	engine posthaste.Engine
	report *reporter
	held   *holdings
	wake   chan struct{}
	retry  backoff
}

func newReconciler(engine posthaste.Engine, report *reporter, held *holdings) *reconciler {
	return &reconciler{engine: engine, report: report, held: held, wake: make(chan struct{}, 1), retry: backoff{report: report, task: "reconcile"}}
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
		worker, upTo, known := r.held.memory()
		if worker == 0 || !poked && upTo == compared {
			continue
		}
		err := r.compare(ctx, worker, upTo, known)
		if posthaste.CodeOf(err) == posthaste.CodeWorkerLost {
			continue // the registration holds nothing any more; the heartbeat registers again
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

// compare releases the deliveries that claims up to upTo have handed out and that are not
// known. A delivery that was settled after upTo was read is either not listed by the store,
// or its release is refused. Neither does harm.
func (r *reconciler) compare(ctx context.Context, worker posthaste.WorkerID, upTo int64, known map[posthaste.DeliveryID]struct{}) error {
	return bounded(ctx, reconcileTimeout, func(ctx context.Context) error {
		ids, err := r.engine.Unsettled(ctx, worker, upTo)
		if err != nil {
			return err
		}
		var release []posthaste.Settlement
		for _, id := range ids {
			if _, ok := known[id]; !ok {
				release = append(release, posthaste.Settlement{Delivery: id, Outcome: posthaste.OutcomeReleased})
			}
		}
		if len(release) == 0 {
			return nil
		}
		for rest := release; len(rest) > 0; {
			n := min(len(rest), settleMost)
			if _, err := r.engine.Settle(ctx, rest[:n]); err != nil {
				return err
			}
			rest = rest[n:]
		}
		r.report.log.Info("released deliveries of replies that were lost", slog.Int("deliveries", len(release)))
		return nil
	})
}
