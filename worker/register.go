package worker

import (
	"context"

	"github.com/posthaste-mq/posthaste"
)

// Register registers a handler for the messages of T's kind in a queue. A queue may have
// handlers for any number of kinds, and one for all others (see [Handle]). Without that one, a
// message of another kind is set aside: it costs no attempt, and waits for a worker that
// handles its kind. So an old version of a program never gets the messages of a new one.
//
// [WithConcurrency], [WithBatchSize] and [WithOwnTransaction] apply to the subscription: give
// them to one of its handlers, or the same to several. T's Kind is called with the zero value of
// T. In an at-most-once queue a handler for all kinds is required. Call Register before
// [Worker.Run].
func Register[T posthaste.Kinded](w *Worker, queue string, h func(ctx context.Context, d posthaste.Delivery[T]) error, options ...Option) {
	Handle(w, queue, h, append([]Option{ofKind[T]()}, options...)...)
}

// RegisterBatch is [HandleBatch] for the messages of T's kind, as [Register] is [Handle]. The
// kinds of one call of the pool are handled one after the other. Handlers of one subscription
// get either single messages or batches.
func RegisterBatch[T posthaste.Kinded](w *Worker, queue string, h func(ctx context.Context, batch []posthaste.Delivery[T]) []error, options ...Option) {
	HandleBatch(w, queue, h, append([]Option{ofKind[T]()}, options...)...)
}

func ofKind[T posthaste.Kinded]() Option {
	var zero T
	return WithKind(zero.Kind())
}

// WithKind registers the handler for messages of one kind only, as [Register] does. With an empty
// kind it gets the messages without a kind.
func WithKind(kind string) Option {
	return func(r *route) { r.kind = &kind }
}
