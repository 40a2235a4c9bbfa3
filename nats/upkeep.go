package nats

import (
	"context"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Maintain implements [posthaste.Engine]. UpkeepSpace also removes what killed processes left, once a minute.
func (e *Engine) Maintain(ctx context.Context, kinds posthaste.Upkeep) (reply posthaste.MaintainReply, err error) {
	if err := e.ready(ctx); err != nil {
		return reply, err
	}
	if kinds&posthaste.UpkeepTicks != 0 {
		if err := e.tickDue(ctx, &reply); err != nil {
			return reply, err
		}
	}
	if kinds&(posthaste.UpkeepRescue|posthaste.UpkeepSpace) != 0 {
		if err := e.loseWorkers(ctx); err != nil {
			return reply, err
		}
		reply.Rescued = e.rescue(ctx)
	}
	if last, now := e.orphansAt.Load(), int64(uptime()); kinds&posthaste.UpkeepSpace != 0 && (last == 0 || now-last > int64(time.Minute)) && e.orphansAt.CompareAndSwap(last, now) {
		return reply, e.dropOrphanConsumers(ctx)
	}
	return reply, nil
}
