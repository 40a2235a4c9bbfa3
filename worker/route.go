package worker

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/sharedbell"
)

// route connects a subscription with its handler. It has the options of the registration, the
// properties that the queue and its claims report, and the signals between fetcher, pool and
// acknowledger.
type route struct {
	ref         posthaste.QueueRef
	handler     posthaste.Handler
	many        many // in place of handler, for a sink or a batch handler
	middleware  []func(posthaste.Handler) posthaste.Handler
	kind        *string // the only kind that the handler gets; nil for all
	kinds       *kinds  // of a subscription with handlers by kind, else nil
	retry       RetryPolicy
	concurrency int
	bounded     bool  // concurrency was set by WithConcurrency
	batch       int64 // maximum of messages in one call
	sized       bool  // batch was set by WithBatchSize
	single      bool  // the handler settles in transactions of its own
	destination string
	noter       *noter

	lanes   int         // of the queue; set before the fetcher runs
	once    atomic.Bool // at-most-once: the claim settles the messages
	inOrder atomic.Bool // the queue is ordered

	// wanted has a token when the fetcher should check the capacity again.
	wanted chan struct{}
	// starved says that a goroutine of the pool ran out of messages since starved was reset.
	starved atomic.Bool
	// throttled says that the fetcher waits for outcomes to be settled.
	throttled atomic.Bool
	// full says that the fetcher sleeps, or is about to, because the queue's concurrency
	// is used up. A settle of this worker may free a part of it, and then wakes the fetcher.
	full atomic.Bool
	// completed counts the messages whose outcome the acknowledger has received.
	completed atomic.Int64
	// claimTook is the duration of the latest claim, in ns.
	claimTook atomic.Int64
}

// many handles several messages in one call: a sink or a batch handler.
type many interface {
	// deliver answers each of items. It may call note with the answer of the i-th item
	// before it returns; that answer counts even if the call fails or is abandoned.
	deliver(ctx context.Context, note func(i int, err error), items []posthaste.RawDelivery) []posthaste.SinkResult
}

// wrap puts middleware around the handler, the first one outermost.
func (r *route) wrap(middleware []func(posthaste.Handler) posthaste.Handler) {
	chain := func(h posthaste.Handler) posthaste.Handler {
		for _, around := range slices.Backward(middleware) {
			h = around(h)
		}
		return h
	}
	if len(middleware) == 0 {
		return
	}
	if r.handler != nil {
		r.handler = chain(r.handler)
	} else if b, ok := r.many.(interface {
		wrap(func(posthaste.Handler) posthaste.Handler)
	}); ok {
		b.wrap(chain)
	}
}

// want asks the fetcher to check the capacity again.
func (r *route) want() { token(r.wanted) }

// completed counts the messages that ended in this worker.
func completed(routes []*route) (n int64) {
	for _, r := range routes {
		n += r.completed.Load()
	}
	return n
}

func refsOf(routes []*route) []posthaste.QueueRef {
	refs := make([]posthaste.QueueRef, len(routes))
	for i, r := range routes {
		refs[i] = r.ref
	}
	return refs
}

// shareBell returns a doorbell at which the fetchers of several subscriptions of one queue
// can sleep. It returns bell itself if no queue has several.
func shareBell(ctx context.Context, bell posthaste.Doorbell, routes []*route) posthaste.Doorbell {
	seen := map[string]bool{}
	for _, r := range routes {
		if seen[r.ref.Queue] {
			return sharedbell.New(ctx, bell)
		}
		seen[r.ref.Queue] = true
	}
	return bell
}
