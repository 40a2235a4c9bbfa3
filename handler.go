package posthaste

import "context"

// Handler handles one delivery. Nil acknowledges it; an error fails the
// attempt (see [Permanent], [RetryAfter] and [Snooze]). The context ends when
// the process stops, or at the delivery's Timeout, which is set by the message, its kind or its
// queue.
type Handler func(ctx context.Context, d RawDelivery) error

// Typed returns a Handler that decodes the payload (see [Decode]) and calls h. A payload that
// cannot be decoded fails permanently, so that it does not block other messages.
func Typed[T any](h func(ctx context.Context, d Delivery[T]) error, codecs ...Codec) Handler {
	return func(ctx context.Context, d RawDelivery) error {
		var payload T
		if err := Decode(d, &payload, codecs...); err != nil {
			return Permanent(err)
		}
		return h(ctx, Delivery[T]{RawDelivery: d, Payload: payload})
	}
}
