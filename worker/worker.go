// Package worker runs handlers: it claims messages, calls a handler or sink for each, and
// records the outcome.
//
// Create a [Worker] with [New], register handlers with [Handle], [HandleBatch], [HandleRaw] or
// [Register], and call Run. Run returns after its context ends and the running handlers have
// finished. Several workers in any number of processes can share a queue.
//
// A worker keeps its claims alive with heartbeats. If it crashes, other workers settle its
// deliveries as lost and the messages are retried. Each worker also runs upkeep for the store:
// crash recovery, recurring schedules, counting and reclaiming space.
//
// # Internals
//
// Each part has a file of its own. The fetcher claims a message, the holdings keep it in the
// backlog of its route, and the pool calls the handler. The outbox passes the outcome to the
// acknowledger, which settles the delivery and informs the holdings. The heartbeat, the
// reconciler, the rescuer, the scheduler and the janitor run in the background. The runtime
// assembles the parts. A part refers only to the parts that it calls, without cycles.
package worker

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Worker handles messages of any number of queues, and of several subscriptions
// of each. Register handlers first, then call [Worker.Run].
type Worker struct {
	engine  posthaste.Engine
	config  Config
	routes  []*route
	streams []*EventStream
	running atomic.Bool
	started chan struct{}
	wall    func(time.Time) int64 // the wall clock; tests replace it
}

// New returns a worker that uses an engine. [Worker.Run] reports errors in config, together
// with those of the handlers.
func New(engine posthaste.Engine, config Config) *Worker {
	config.setDefaults()
	return &Worker{engine: engine, config: config, started: make(chan struct{}), wall: time.Time.UnixNano}
}

// Handle registers a handler of decoded payloads for a queue. See
// [posthaste.Decode] for how payloads are decoded. A message whose payload cannot be decoded
// is dead-lettered. Call Handle before [Worker.Run].
func Handle[T any](w *Worker, queue string, h func(ctx context.Context, d posthaste.Delivery[T]) error, options ...Option) {
	if h == nil {
		HandleRaw(w, queue, nil, options...)
		return
	}
	HandleRaw(w, queue, posthaste.Typed(h, w.config.Codecs...), options...)
}

// HandleRaw registers a handler of encoded payloads for a queue. Call it before [Worker.Run].
func HandleRaw(w *Worker, queue string, h posthaste.Handler, options ...Option) {
	w.add(queue, &route{handler: h, batch: 1}, options)
}

// HandleSink registers a sink for a queue. The sink gets messages in batches of up to
// [WithBatchSize]. Its context ends at the shortest timeout of the batch. The caller closes the
// sink after [Worker.Run] has returned. Call HandleSink before [Worker.Run].
func HandleSink(w *Worker, queue string, sink posthaste.Sink, options ...Option) {
	r := &route{batch: sinkBatch}
	if sink != nil {
		r.many = sinkCalls{sink}
	}
	w.add(queue, r, options)
}

func (w *Worker) add(queue string, r *route, options []Option) {
	r.ref = posthaste.QueueRef{Queue: queue, Subscription: posthaste.DefaultSubscription}
	r.wanted = make(chan struct{}, 1)
	r.retry = w.config.RetryPolicy
	if r.concurrency == 0 {
		r.concurrency = w.config.Concurrency
	}
	for _, o := range options {
		o(r)
	}
	w.routes = append(w.routes, r)
}

// Reads returns the subscriptions that the worker's handlers read, in the order in which they
// were registered.
func (w *Worker) Reads() []posthaste.QueueRef {
	joined, _ := joinKinds(w.routes)
	return refsOf(joined)
}

// check returns all errors in the configuration and the handlers.
func (w *Worker) check() error {
	faults := []error{w.config.check()}
	fault := func(bad bool, field, format string, args ...any) {
		if bad {
			faults = append(faults, posthaste.Invalidf(field, format, args...))
		}
	}
	fault(len(w.routes) == 0, "queue", "the worker has no handler: register one with Handle before Run")
	type handles struct {
		ref  posthaste.QueueRef
		all  bool
		kind string
	}
	seen := map[handles]bool{}
	for _, r := range w.routes {
		q := r.ref.Queue
		faults = append(faults, posthaste.CheckName("queue", q), posthaste.CheckName("subscription", r.ref.Subscription))
		fault(r.handler == nil && r.many == nil, "handler", "the handler of queue %q is nil", q)
		fault(r.concurrency < 1 || r.concurrency > 100_000, "Concurrency", "Concurrency of queue %q must be 1 to 100000, got %d", q, r.concurrency)
		fault(r.batch < 1 || r.batch > posthaste.MaxPlaces, "BatchSize", "BatchSize of queue %q must be 1 to %d, got %d", q, posthaste.MaxPlaces, r.batch)
		fault(r.sized && r.handler != nil, "BatchSize", "BatchSize is not allowed for queue %q, whose handler gets single messages; use HandleBatch", q)
		_, sink := r.many.(sinkCalls)
		fault(sink && len(r.middleware) > 0, "Middleware", "Middleware is not allowed for queue %q, which has a sink", q)
		fault(!sink && r.destination != "", "Destination", "Destination is not allowed for queue %q, which has no sink", q)
		fault(len(r.destination) > posthaste.MaxWordBytes, "Destination", "Destination of queue %q has %d bytes, at most %d are allowed", q, len(r.destination), posthaste.MaxWordBytes)
		for i, m := range r.middleware {
			fault(m == nil, "Middleware", "Middleware %d of queue %q is nil", i+1, q)
		}
		what := handles{ref: r.ref, all: r.kind == nil}
		if r.kind != nil {
			what.kind = *r.kind
			fault(len(what.kind) > posthaste.MaxWordBytes, "kind", "a kind of queue %q has %d bytes, at most %d are allowed", q, len(what.kind), posthaste.MaxWordBytes)
			fault(seen[what], "kind", "subscription %q of queue %q has two handlers for kind %q", r.ref.Subscription, q, what.kind)
		} else {
			fault(seen[what], "queue", "subscription %q of queue %q has two handlers for all kinds; register one by kind with Register", r.ref.Subscription, q)
		}
		seen[what] = true
	}
	_, conflicts := joinKinds(w.routes)
	return errors.Join(append(faults, conflicts...)...)
}

// Started is closed once the worker is registered and claims messages.
func (w *Worker) Started() <-chan struct{} { return w.started }

// Run handles messages until ctx ends. Then it stops claiming, releases the messages that have
// not started, lets handlers finish within Config.Grace, records their outcomes, ends its
// registration and returns nil. Handlers that need longer are cancelled and abandoned; their
// messages are redelivered to other workers.
//
// Run returns an error only if it cannot start: for an invalid configuration, a queue that
// does not exist, a schema version that does not match, or missing privileges. While the
// store is unavailable, Run waits for it, at the start as well as later. Run may be called
// once.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.check(); err != nil {
		w.endStreams()
		return err
	}
	if !w.running.CompareAndSwap(false, true) {
		return &posthaste.Error{Code: posthaste.CodeConflict, Message: "Run was already called on this worker", Hint: "create another worker with New"}
	}
	defer w.endStreams()
	for _, r := range w.routes {
		r.wrap(slices.Concat(w.config.Middleware, r.middleware))
	}
	routes, _ := joinKinds(w.routes)
	base := context.WithoutCancel(ctx) // what the worker does at its end must not end with ctx
	rt := newRuntime(base, w.engine, &w.config, routes, w.wall)
	if err := rt.prepare(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	rt.start(base)
	close(w.started)
	<-ctx.Done()
	rt.shutdown(base)
	return nil
}
