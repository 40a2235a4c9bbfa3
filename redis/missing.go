package redis

import (
	"context"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// What this engine does not do yet. Each is refused by its name.

const schedules = "schedules"

// SchedulePut implements [posthaste.Scheduling].
func (e *Engine) SchedulePut(context.Context, posthaste.Schedule) (time.Time, error) {
	return time.Time{}, unsupported("", schedules)
}

// ScheduleDrop implements [posthaste.Scheduling].
func (e *Engine) ScheduleDrop(context.Context, string) error { return unsupported("", schedules) }

// SchedulePause implements [posthaste.Scheduling].
func (e *Engine) SchedulePause(context.Context, string) error { return unsupported("", schedules) }

// ScheduleResume implements [posthaste.Scheduling].
func (e *Engine) ScheduleResume(context.Context, string) (time.Time, error) {
	return time.Time{}, unsupported("", schedules)
}

// Schedules implements [posthaste.Scheduling].
func (e *Engine) Schedules(context.Context, ...string) ([]posthaste.ScheduleInfo, error) {
	return nil, unsupported("", schedules)
}

// Tick implements [posthaste.Scheduling]: there is none that ticks.
func (e *Engine) Tick(context.Context) (posthaste.TickReply, error) {
	return posthaste.TickReply{}, nil
}
