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
	maintainIdle    = 30 * time.Second // longest time between rounds while none do
)

// janitor calls the store's maintenance: each second while messages flow, and less and less
// often while none do.
type janitor struct {
	engine posthaste.Engine
	report *reporter
	routes []*route
	idle   time.Duration // longest time between rounds
	wake   chan struct{} // has a token when a heartbeat says that messages flowed
	retry  backoff
}

func newJanitor(engine posthaste.Engine, report *reporter, routes []*route) *janitor {
	return &janitor{engine: engine, report: report, routes: routes, idle: maintainIdle, wake: make(chan struct{}, 1),
		retry: backoff{report: report, task: "maintain"}}
}

func (j *janitor) run(ctx context.Context) {
	wait, seen := maintainBusy, int64(0)
	for ctx.Err() == nil {
		var reply posthaste.MaintainReply
		err := bounded(ctx, maintainTimeout, func(ctx context.Context) (err error) {
			reply, err = j.engine.Maintain(ctx, posthaste.UpkeepSpace)
			return err
		})
		if err != nil {
			j.retry.failed(ctx, err)
			continue
		}
		j.retry.worked()
		if reply.ClockSetBack {
			j.report.tell(posthaste.Event{Kind: posthaste.EventClock})
		}
		j.report.rescued(reply.Rescued)
		// Messages that this worker itself handles need no heartbeat to announce them.
		flowed := completed(j.routes)
		if reply.More || reply.Flowed || flowed != seen {
			wait = maintainBusy
		} else {
			wait = min(2*wait, j.idle)
		}
		seen = flowed
		if reply.More {
			continue
		}
		timer := time.NewTimer(wait + rand.N(wait/4)) // jitter spreads the workers
		select {
		case <-timer.C:
		case <-j.wake:
			wait = maintainBusy
			// A heartbeat may come right after a round; rounds stay a second apart.
			pause(ctx, maintainBusy)
		case <-ctx.Done():
		}
		timer.Stop()
	}
}
