package nats

import (
	"context"

	"github.com/posthaste-mq/posthaste"
)

func (e *Engine) alive(posthaste.WorkerID) error { return nil }
func (e *Engine) lost(posthaste.WorkerID) bool   { return false }
func (e *Engine) workerName(*held) string        { return "" }
func (e *Engine) Register(ctx context.Context, _ posthaste.WorkerInfo) (posthaste.WorkerID, error) {
	n, err := e.sequence(ctx)
	return posthaste.WorkerID(n), err
}
func (e *Engine) Heartbeat(ctx context.Context, b posthaste.Heartbeat) (r posthaste.HeartbeatReply, err error) {
	e.renew(ctx, b.Worker)
	for _, ref := range b.Queues {
		l, err := e.look(ctx, ref)
		if err != nil {
			return r, err
		}
		r.Looks = append(r.Looks, l)
	}
	return r, nil
}
func (e *Engine) Unregister(ctx context.Context, w posthaste.WorkerID) error {
	e.giveBack(ctx, w)
	return nil
}
func (e *Engine) Maintain(ctx context.Context, kinds posthaste.Upkeep) (r posthaste.MaintainReply, err error) {
	if kinds&posthaste.UpkeepRescue != 0 {
		r.Rescued = e.rescue(ctx)
	}
	return r, nil
}
