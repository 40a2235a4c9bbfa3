package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// upkeepIdle is the most between rounds of [Upkeep], and between its looks for schedules:
// there are no heartbeats that tell it of either.
const upkeepIdle = 5 * time.Second

// Upkeep keeps a store in order until ctx ends: what lost workers and ended leases held is
// handed out anew, messages are counted, space is given back, schedules tick. Workers do so
// by themselves; it is for programs that only send, or serve others. It calls the store each
// second while messages flow, and every 5 s when none do. Any number of programs may do so
// at the same time. Failures are logged, and tried again. A nil log is [slog.Default].
func Upkeep(ctx context.Context, engine posthaste.Engine, log *slog.Logger) {
	if log == nil {
		log = slog.Default()
	}
	rt := &runtime{engine: engine, log: log, quiet: true, base: context.WithoutCancel(ctx)}
	upkeep, schedules := newJanitor(rt), newScheduler(rt)
	upkeep.idle = upkeepIdle
	var services sync.WaitGroup
	services.Go(func() { upkeep.run(ctx) })
	services.Go(func() { schedules.run(ctx) })
	for again := true; again; again = pause(ctx, upkeepIdle) {
		schedules.next(time.Now(), time.Nanosecond)
	}
	services.Wait()
}
