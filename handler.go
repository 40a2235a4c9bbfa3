package posthaste

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// Handler handles one delivery. Nil acknowledges it; an error fails the
// attempt (see [Permanent] and [RetryAfter]). The context ends at the queue's
// timeout, or when the process has to stop.
type Handler func(ctx context.Context, d RawDelivery) error

// Typed makes a Handler of a function with a decoded payload. A payload that
// cannot be decoded fails for good, so that it never blocks its neighbours.
func Typed[T any](h func(ctx context.Context, d Delivery[T]) error) Handler {
	return func(ctx context.Context, d RawDelivery) error {
		var payload T
		if err := Decode(d, &payload); err != nil {
			return Permanent(err)
		}
		return h(ctx, Delivery[T]{RawDelivery: d, Payload: payload})
	}
}

// Decode decodes the payload of d into a value by its content type: JSON
// ("application/json", "…+json" or empty), and any content type into *[]byte,
// *json.RawMessage or *string.
func Decode(d RawDelivery, into any) error {
	switch p := into.(type) {
	case *[]byte:
		*p = d.Payload
		return nil
	case *json.RawMessage:
		*p = d.Payload
		return nil
	}
	media, _, _ := strings.Cut(d.ContentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	if media == "" || media == ContentTypeJSON || strings.HasSuffix(media, "+json") {
		if err := json.Unmarshal(d.Payload, into); err != nil {
			return fmt.Errorf("payload cannot be decoded as JSON into %T: %w", into, err)
		}
		return nil
	}
	if p, ok := into.(*string); ok {
		*p = string(d.Payload)
		return nil
	}
	return fmt.Errorf("no codec for content type %q into %T", d.ContentType, into)
}
