package memory

import (
	"context"

	"github.com/posthaste-mq/posthaste"
)

// unlimited returns the error for features that this engine lacks.
func unlimited(field string) error {
	return &posthaste.Error{Code: posthaste.CodeUnsupported, Field: field, Message: "the engine in memory has no limits and does not look at keys"}
}

// UpdateQueue implements [posthaste.QueueAdmin].
func (e *Engine) UpdateQueue(ctx context.Context, name string, update posthaste.QueueUpdate) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	q, err := e.queue(name)
	if err != nil {
		return err
	}
	if update.Options.Limits != (posthaste.QueueLimits{}) {
		return unlimited("limits")
	}
	is, changes, err := update.Apply(name, q.options)
	if err != nil || len(changes) == 0 {
		return err
	}
	q.options = is
	e.record(ctx, posthaste.Action{Action: "update", Queue: name, Details: posthaste.ChangeDetails(changes)})
	for b := range e.bells { // a message may be available earlier now, or expire
		b.Wake(q.name)
	}
	return ctx.Err()
}
