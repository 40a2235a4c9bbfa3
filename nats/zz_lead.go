package nats

import (
	"context"

	"github.com/posthaste-mq/posthaste"
)

// What the lead replaces.

func (e *Engine) renew(context.Context, posthaste.WorkerID) error { return nil }

func (e *Engine) giveBack(context.Context, posthaste.WorkerID) error { return nil }

func (e *Engine) look(context.Context, posthaste.QueueRef) (posthaste.LookReply, error) {
	return posthaste.LookReply{NextDue: -1}, nil
}

// askQueues asks the processes that hold deliveries for the queues of these, "" if none does.
func (e *Engine) askQueues(_ context.Context, ids []posthaste.DeliveryID) ([]string, error) {
	return make([]string, len(ids)), nil
}

// Maintain implements [posthaste.Engine].
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
		err = e.loseWorkers(ctx)
	}
	return reply, err
}
