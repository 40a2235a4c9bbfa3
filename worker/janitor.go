package worker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/posthaste-mq/posthaste"
)

const (
	maintainTimeout = 60 * time.Second
	maintainBusy    = time.Second      // between rounds while messages flow
	maintainIdle    = 30 * time.Second // and at most when none do
)

// janitor calls the store's upkeep: each second while messages flow, less and
// less often when none do.
type janitor struct {
	rt    *runtime
	idle  time.Duration
	wake  chan struct{} // messages flowed, says a heartbeat
	retry backoff
}

func newJanitor(rt *runtime) *janitor {
	return &janitor{rt: rt, idle: maintainIdle, wake: make(chan struct{}, 1), retry: backoff{rt: rt, task: "maintain"}}
}

func (j *janitor) run(ctx context.Context) {
	wait, seen := maintainBusy, int64(0)
	for ctx.Err() == nil {
		var reply posthaste.MaintainReply
		err := bounded(ctx, maintainTimeout, func(ctx context.Context) (err error) {
			reply, err = j.rt.engine.Maintain(ctx)
			return err
		})
		if err != nil {
			j.retry.failed(ctx, err)
			continue
		}
		j.retry.worked()
		if reply.ClockSetBack {
			j.rt.tell(posthaste.Event{Kind: posthaste.EventClock})
		}
		j.rt.rescued(reply.Rescued)
		// While this worker itself handles messages it needs nobody to say so.
		flowed := j.rt.completed()
		if reply.More || reply.Flowed || flowed != seen {
			wait = maintainBusy
		} else {
			wait = min(2*wait, j.idle)
		}
		seen = flowed
		if reply.More {
			continue
		}
		timer := time.NewTimer(wait + rand.N(wait/4)) // workers spread out
		select {
		case <-timer.C:
		case <-j.wake:
			wait = maintainBusy
			// A heartbeat may come at once; rounds stay a second apart.
			pause(ctx, maintainBusy)
		case <-ctx.Done():
		}
		timer.Stop()
	}
}
