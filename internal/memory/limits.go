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
func (e *Engine) UpdateQueue(_ context.Context, name string, update posthaste.QueueUpdate) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := e.queue(name); err != nil {
		return err
	}
	if update.Limits == nil || *update.Limits == (posthaste.QueueLimits{}) {
		return nil
	}
	return unlimited("limits")
}
