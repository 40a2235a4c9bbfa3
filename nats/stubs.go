package nats

import (
	"context"

	"github.com/posthaste-mq/posthaste"
)

var _ posthaste.Store = (*Engine)(nil)

func notYet(what string) error {
	return &posthaste.Error{Code: posthaste.CodeUnsupported, Message: what + " is not implemented yet"}
}

func (e *Engine) Queues(_ context.Context, _ ...string) (r00 []posthaste.QueueInfo, r10 error) {
	return r00, notYet("Queues")
}
func (e *Engine) UpdateQueue(_ context.Context, _ string, _ posthaste.QueueUpdate) (r00 error) {
	return notYet("UpdateQueue")
}
func (e *Engine) DropQueue(_ context.Context, _ string, _ posthaste.DropOptions) (r00 error) {
	return notYet("DropQueue")
}
func (e *Engine) PurgeQueue(_ context.Context, _ string) (r00 []posthaste.Purged, r10 error) {
	return r00, notYet("PurgeQueue")
}
func (e *Engine) Subscribe(_ context.Context, _ string, _ string, _ posthaste.SubscriptionOptions) (r00 error) {
	return notYet("Subscribe")
}
func (e *Engine) Unsubscribe(_ context.Context, _ string, _ string, _ posthaste.DropOptions) (r00 error) {
	return notYet("Unsubscribe")
}
func (e *Engine) Vitals(_ context.Context) (r00 posthaste.Vitals, r10 error) {
	return r00, notYet("Vitals")
}
func (e *Engine) Doctor(_ context.Context) (r00 []posthaste.Finding, r10 error) {
	return r00, notYet("Doctor")
}
