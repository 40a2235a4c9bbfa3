package posthaste

import "context"

// Handler handles one delivery. Nil acknowledges it; an error fails the
// attempt (see [Permanent], [RetryAfter] and [Snooze]). The context ends at the queue's
// timeout, or when the process has to stop.
type Handler func(ctx context.Context, d RawDelivery) error

// Typed makes a Handler of a function with a decoded payload (see [Decode]). A
// payload that cannot be decoded fails for good, so that it never blocks its
// neighbours.
func Typed[T any](h func(ctx context.Context, d Delivery[T]) error, codecs ...Codec) Handler {
	return func(ctx context.Context, d RawDelivery) error {
		var payload T
		if err := Decode(d, &payload, codecs...); err != nil {
			return Permanent(err)
		}
		return h(ctx, Delivery[T]{RawDelivery: d, Payload: payload})
	}
}
