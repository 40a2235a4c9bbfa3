package worker

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/posthaste-mq/posthaste"
)

const rescueTimeout = 30 * time.Second

// A lease is looked at this long after its end, and up to as much later: the store
// may end a part of it a moment after the rest, and workers spread out.
const rescueSlack = 100 * time.Millisecond

// rescuer hands out anew what lost workers and ended leases left unsettled: at
// the start, whenever a heartbeat says that it is needed, and when the first
// lease of a worker that no longer beats ends, which heartbeats tell beforehand.
// Any number of workers may do so at the same time.
type rescuer struct {
	rt    *runtime
	due   *alarm
	retry backoff
}

func newRescuer(rt *runtime) *rescuer {
	return &rescuer{rt: rt, due: newAlarm(), retry: backoff{rt: rt, task: "rescue"}}
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
		r.due.wait(ctx)
	}
}

// next notes what a heartbeat that was answered at a time said. The leases of
// workers that live end later with each of theirs, so the alarm rings for others
// only. It rings for the first of several; the next heartbeat tells the next.
func (r *rescuer) next(answered time.Time, reply posthaste.HeartbeatReply) {
	switch {
	case reply.Rescue:
		r.due.set(answered)
	case reply.RescueIn > 0:
		r.due.set(answered.Add(reply.RescueIn + rescueSlack + rand.N(rescueSlack)))
	default:
		r.due.set(time.Time{})
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
