package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// upkeepIdle bounds the time between two rounds of [Upkeep] and between two ticks of its
// schedules, because there are no heartbeats that announce either.
const upkeepIdle = 5 * time.Second

// Upkeep maintains a store until ctx ends: it makes the deliveries of lost workers and ended
// leases available again, counts messages, frees space and sends the messages of recurring
// schedules. Workers do so by themselves; Upkeep is for programs that only send messages or
// serve other programs. It calls the store each second while messages flow, and every 5 s
// while none do. Any number of programs may call it at the same time. It logs failures and
// retries. If log is nil, it uses [slog.Default].
func Upkeep(ctx context.Context, engine posthaste.Engine, log *slog.Logger) {
	if log == nil {
		log = slog.Default()
	}
	report := newReporter(context.WithoutCancel(ctx), log, posthaste.NoTelemetry{})
	upkeep, schedules := newJanitor(engine, report, nil), newScheduler(engine, report)
	upkeep.idle = upkeepIdle
	var services sync.WaitGroup
	services.Go(func() { upkeep.run(ctx) })
	services.Go(func() { schedules.run(ctx) })
	for again := true; again; again = pause(ctx, upkeepIdle) {
		schedules.next(time.Now(), time.Nanosecond)
	}
	services.Wait()
}
