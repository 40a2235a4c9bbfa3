package memory

import (
	"context"

	"github.com/posthaste-mq/posthaste"
)

// unlimited returns the error for features that this engine lacks.
func unlimited(field string) error {
	return &posthaste.Error{Code: posthaste.Unsupported, Field: field, Message: "the engine in memory has no limits and does not look at keys"}
}

// QueueLimit implements [posthaste.Admin].
func (e *Engine) QueueLimit(_ context.Context, _, _ string, limits posthaste.QueueLimits) error {
	if limits == (posthaste.QueueLimits{}) {
		return nil
	}
	return unlimited("limits")
}

// KeyPause implements [posthaste.Admin].
func (e *Engine) KeyPause(context.Context, string, string, string) error { return unlimited("key") }

// KeyResume implements [posthaste.Admin].
func (e *Engine) KeyResume(context.Context, string, string, string) error { return unlimited("key") }
