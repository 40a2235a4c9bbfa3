package redis

import (
	"context"
	"encoding/json"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

// UpdateQueue implements [posthaste.QueueAdmin]. Messages in flight count toward the new limits.
func (e *Engine) UpdateQueue(ctx context.Context, name string, update posthaste.QueueUpdate) error {
	if update.Limits == nil {
		return nil
	}
	wanted := *update.Limits
	q, err := e.registry.queue(ctx, name)
	if err != nil {
		return err
	}
	if err := wanted.CheckFor(q.options); err != nil {
		return err
	}
	l := limitsOf(wanted)
	if q.looks == 0 && (l.KeyConcurrency > 0 || l.KeyRate != nil) {
		return &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "limits", Message: "queue " + quote.Name(name) + " was created without limits for each key, and adding one is not supported", Hint: "create another queue"}
	}
	if _, _, err = e.together(ctx, limitScript, name, arg{"limits", l.packed()}); err != nil {
		return writeError(err)
	}
	is := map[string]any{}
	for name, n := range map[string]int{"concurrency": wanted.Concurrency, "key_concurrency": wanted.KeyConcurrency} {
		if n != 0 {
			is[name] = n
		}
	}
	for name, r := range map[string]posthaste.Rate{"rate_limit": wanted.RateLimit, "key_rate_limit": wanted.KeyRateLimit} {
		if !r.IsZero() {
			is[name] = r.String()
		}
	}
	details, err := json.Marshal(is)
	if err != nil {
		return err
	}
	return writeError(e.record(ctx, record{Action: "limit", Queue: name, Details: details}))
}

func (e *Engine) pauseKey(ctx context.Context, name, key, action, paused string) error {
	q, err := e.registry.queue(ctx, name)
	if err != nil {
		return err
	}
	if key == "" {
		return posthaste.Invalidf("key", "the key must not be empty")
	}
	if err := (&posthaste.Message{Queue: name, Key: key}).Check(); err != nil {
		return err
	}
	if q.looks == 0 {
		return &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "key", Message: "queue " + quote.Name(name) + " does not support pausing keys",
			Hint: "pause the queue, or create one that is ordered, fair or has a limit per key"}
	}
	reply, _, err := e.together(ctx, keyScript, name, arg{"key", key}, arg{"pause", paused})
	if err != nil || reply != int64(1) {
		return writeError(err)
	}
	details, err := json.Marshal(map[string]string{"key": key})
	if err != nil {
		return err
	}
	return writeError(e.record(ctx, record{Action: action, Queue: name, Details: details}))
}
