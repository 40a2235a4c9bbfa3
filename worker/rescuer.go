package worker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/posthaste-mq/posthaste"
)

const rescueTimeout = 30 * time.Second

// rescueSlack is the time between the end of a lease and its rescue, with jitter of up to
// as much again. The store may end a part of a lease a moment after the rest, and the
// jitter keeps workers from rescuing at the same time.
const rescueSlack = 100 * time.Millisecond

// rescuer makes the unsettled deliveries of lost workers and ended leases available again:
// at the start, when a heartbeat says that a rescue is due, and when the first lease ends
// of a worker that sends no heartbeats, which heartbeats announce. Any number of workers
// may rescue at the same time.
type rescuer struct {
	engine posthaste.Engine
	report *reporter
	due    *alarm
	retry  backoff
}

func newRescuer(engine posthaste.Engine, report *reporter) *rescuer {
	return &rescuer{engine: engine, report: report, due: newAlarm(), retry: backoff{report: report, task: "rescue"}}
}

func (r *rescuer) run(ctx context.Context) {
	for ctx.Err() == nil {
		var reply posthaste.MaintainReply
		err := bounded(ctx, rescueTimeout, func(ctx context.Context) (err error) {
			reply, err = r.engine.Maintain(ctx, posthaste.UpkeepRescue)
			return err
		})
		if err != nil {
			r.retry.failed(ctx, err)
			continue
		}
		r.retry.worked()
		r.report.rescued(reply.Rescued)
		if reply.Rescued > 0 {
			continue // there may be more
		}
		r.due.wait(ctx)
	}
}

// next sets the alarm by a heartbeat's reply. A worker that is alive extends its lease with
// each heartbeat, so that the alarm rings only for workers that are not. It rings for the
// first lease that ends; the next heartbeat announces the one after it.
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
