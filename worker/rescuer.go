package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/posthaste-mq/posthaste"
)

const rescueTimeout = 30 * time.Second

// rescuer hands out anew what lost workers and ended leases left unsettled:
// at the start, and whenever a heartbeat says that it is needed. Any number of
// workers may do so at the same time.
type rescuer struct {
	rt    *runtime
	wake  chan struct{}
	retry backoff
}

func newRescuer(rt *runtime) *rescuer {
	return &rescuer{rt: rt, wake: make(chan struct{}, 1), retry: backoff{rt: rt, task: "rescue"}}
}

func (r *rescuer) run(ctx context.Context) {
	for ctx.Err() == nil {
		var lost int
		err := bounded(ctx, rescueTimeout, func(ctx context.Context) (err error) {
			lost, err = r.rt.engine.Rescue(ctx)
			return err
		})
		if err != nil {
			r.retry.failed(ctx, err)
			continue
		}
		r.retry.worked()
		r.rt.rescued(lost)
		if lost > 0 {
			continue // there may be more
		}
		select {
		case <-r.wake:
		case <-ctx.Done():
		}
	}
}

// rescued tells of deliveries that were handed out anew, by a rescuer or by a
// round of maintenance.
func (rt *runtime) rescued(lost int) {
	if lost > 0 {
		rt.log.Info("handed out anew what a lost holder had", slog.Int("deliveries", lost))
		rt.tell(posthaste.Event{Kind: posthaste.EventRescued, Count: lost})
	}
}
