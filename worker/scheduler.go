package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/posthaste-mq/posthaste"
)

const (
	tickTimeout = 30 * time.Second
	// What is due and was not sent is somebody else's just now.
	firstTickWait, slowestTickWait = 20 * time.Millisecond, time.Second
)

// scheduler sends the messages of schedules when they tick. Heartbeats tell
// when that will be; without schedules it asks nothing of the store. Any number
// of workers wake for the same tick, and one of them sends.
type scheduler struct {
	rt    *runtime
	tick  *alarm
	retry backoff
}

func newScheduler(rt *runtime) *scheduler {
	return &scheduler{rt: rt, tick: newAlarm(), retry: backoff{rt: rt, task: "tick"}}
}

// next notes how long after a time the next tick is; zero means that there is none.
func (s *scheduler) next(from time.Time, in time.Duration) {
	var at time.Time
	if in > 0 {
		at = from.Add(in)
	}
	s.tick.set(at)
}

func (s *scheduler) run(ctx context.Context) {
	wait := firstTickWait
	for s.tick.wait(ctx) {
		var reply posthaste.TickReply
		err := bounded(ctx, tickTimeout, func(ctx context.Context) (err error) {
			reply, err = s.rt.engine.Tick(ctx)
			return err
		})
		if err != nil {
			s.retry.failed(ctx, err)
			s.tick.set(time.Now())
			continue
		}
		s.retry.worked()
		if reply.Sent+reply.Missed > 0 {
			s.rt.tell(posthaste.Event{Kind: posthaste.EventTicked, Count: reply.Sent, Missed: reply.Missed})
			s.rt.log.Debug("schedules ticked", slog.Int("sent", reply.Sent), slog.Int("missed", reply.Missed))
			wait = firstTickWait
		} else if reply.TickIn > 0 && reply.TickIn < firstTickWait {
			reply.TickIn = wait
			wait = min(2*wait, slowestTickWait)
		} else {
			wait = firstTickWait
		}
		s.next(time.Now(), reply.TickIn)
	}
}
