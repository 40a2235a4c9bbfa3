package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/posthaste-mq/posthaste"
)

const (
	tickTimeout = 30 * time.Second
	// A tick that is due and sends nothing is being sent by another worker. The scheduler
	// looks again after firstTickWait, doubled each time up to slowestTickWait.
	firstTickWait, slowestTickWait = 20 * time.Millisecond, time.Second
)

// scheduler sends the messages of recurring schedules and ends pauses at their ends. Heartbeats announce the next tick;
// without schedules and ends the scheduler does not call the store. Any number of workers wake for
// the same tick, and one of them sends.
type scheduler struct {
	engine posthaste.Engine
	report *reporter
	tick   *alarm
	retry  backoff
}

func newScheduler(engine posthaste.Engine, report *reporter) *scheduler {
	return &scheduler{engine: engine, report: report, tick: newAlarm(), retry: backoff{report: report, task: "tick"}}
}

// next sets the next tick to the duration in after from; zero means that no tick is expected.
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
		var reply posthaste.MaintainReply
		err := bounded(ctx, tickTimeout, func(ctx context.Context) (err error) {
			reply, err = s.engine.Maintain(ctx, posthaste.UpkeepTicks)
			return err
		})
		if err != nil {
			s.retry.failed(ctx, err)
			s.tick.set(time.Now())
			continue
		}
		s.retry.worked()
		if reply.TicksSent+reply.TicksMissed > 0 {
			s.report.tell(posthaste.Event{Kind: posthaste.EventTicked, Count: reply.TicksSent, Missed: reply.TicksMissed})
			s.report.log.Debug("schedules ticked", slog.Int("sent", reply.TicksSent), slog.Int("missed", reply.TicksMissed))
			wait = firstTickWait
		} else if reply.PausesEnded > 0 {
			s.report.log.Debug("pauses ended", slog.Int("count", reply.PausesEnded))
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
