package nats

import (
	"context"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var _ posthaste.Store = (*Engine)(nil)

func notYet(what string) error {
	return &posthaste.Error{Code: posthaste.CodeUnsupported, Message: what + " is not implemented yet"}
}

func (e *Engine) Message(_ context.Context, _ posthaste.MessageID) (r00 posthaste.MessageInfo, r10 error) {
	return r00, notYet("Message")
}
func (e *Engine) Messages(_ context.Context, _ posthaste.MessageFilter) (r00 posthaste.Page[posthaste.MessageInfo], r10 error) {
	return r00, notYet("Messages")
}
func (e *Engine) Cancel(_ context.Context, _ posthaste.MessageID) (r00 []posthaste.Withdrawal, r10 error) {
	return r00, notYet("Cancel")
}
func (e *Engine) Reschedule(_ context.Context, _ posthaste.MessageID, _ time.Time) (r00 []posthaste.Withdrawal, r10 error) {
	return r00, notYet("Reschedule")
}
func (e *Engine) UpdateMessage(_ context.Context, _ posthaste.MessageID, _ posthaste.MessageUpdate) (r00 posthaste.Updated, r10 error) {
	return r00, notYet("UpdateMessage")
}
func (e *Engine) RunMessage(_ context.Context, _ posthaste.MessageID) (r00 []posthaste.RunResult, r10 error) {
	return r00, notYet("RunMessage")
}
func (e *Engine) DeadLetters(_ context.Context, _ posthaste.DeadLetterFilter) (r00 posthaste.Page[posthaste.DeadLetter], r10 error) {
	return r00, notYet("DeadLetters")
}
func (e *Engine) Replay(_ context.Context, _ posthaste.DeadLetterFilter) (r00 posthaste.Page[posthaste.MessageID], r10 error) {
	return r00, notYet("Replay")
}
func (e *Engine) Discard(_ context.Context, _ posthaste.DeadLetterFilter) (r00 posthaste.Page[posthaste.MessageID], r10 error) {
	return r00, notYet("Discard")
}
func (e *Engine) Erase(_ context.Context, _ string, _ posthaste.MessageID) (r00 posthaste.Page[posthaste.Erasure], r10 error) {
	return r00, notYet("Erase")
}
