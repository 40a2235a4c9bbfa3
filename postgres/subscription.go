package postgres

import (
	"context"
	"encoding/json"

	"github.com/posthaste-mq/posthaste"
)

// Subscribe implements [posthaste.QueueAdmin].
func (e *Engine) Subscribe(ctx context.Context, queue, subscription string, o posthaste.SubscriptionOptions) error {
	options := map[string]any{}
	if o.From != "" {
		options["from"] = o.From
	}
	if o.Scheduled {
		options["scheduled"] = true
	}
	if o.MaxLag != 0 {
		options["max_lag"] = interval(o.MaxLag)
	}
	filter := map[string]any{}
	if len(o.Filter.Kinds) > 0 {
		filter["kind"] = o.Filter.Kinds
	}
	if len(o.Filter.Headers) > 0 {
		filter["headers"] = o.Filter.Headers
	}
	if len(filter) > 0 {
		options["filter"] = filter
	}
	text, err := json.Marshal(options)
	if err != nil {
		return err
	}
	return e.repeatable(ctx, "select posthaste.subscribe($1::text, $2::text, $3::text::jsonb, nullif($4::text, ''))", queue, subscription, string(text), posthaste.ActorOf(ctx))
}

// Unsubscribe implements [posthaste.QueueAdmin].
func (e *Engine) Unsubscribe(ctx context.Context, queue, subscription string, o posthaste.DropOptions) error {
	return e.exec(ctx, writeError, "select posthaste.unsubscribe($1::text, $2::text, nullif($3::text, ''), $4)", queue, subscription, posthaste.ActorOf(ctx), o.IfEmpty)
}
