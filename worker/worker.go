// Package worker is the runtime: it claims messages, calls handlers and sinks,
// records outcomes, and keeps a process alive in the store's eyes. One role
// lives in one file; this one only assembles them.
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
	subs    []*subscription
	running atomic.Bool
	started chan struct{}
	wall    func(time.Time) int64 // the wall clock, which jumps in tests
}

// New returns a worker on an engine. Faults in config are reported by
// [Worker.Run], together with those of the handlers.
func New(engine posthaste.Engine, config Config) *Worker {
	config.setDefaults()
	return &Worker{engine: engine, config: config, started: make(chan struct{}), wall: time.Time.UnixNano}
}

// Handle registers a handler of decoded payloads for a queue. See
// [posthaste.Decode] for how payloads are decoded; those that cannot be go to
// the dead letters. Call it before [Worker.Run].
func Handle[T any](w *Worker, queue string, h func(ctx context.Context, d posthaste.Delivery[T]) error, options ...Option) {
	if h == nil {
		HandleRaw(w, queue, nil, options...)
		return
	}
	HandleRaw(w, queue, posthaste.Typed(h, w.config.Codecs...), options...)
}

// HandleRaw registers a handler of encoded payloads for a queue. Call it
// before [Worker.Run].
func HandleRaw(w *Worker, queue string, h posthaste.Handler, options ...Option) {
	w.add(queue, &subscription{handler: h, batch: 1}, options)
}

// HandleSink registers a sink for a queue, which gets messages in batches of
// up to [BatchSize]. Its context ends at the shortest timeout of the batch. The
// caller closes the sink, after [Worker.Run] has returned. Call HandleSink
// before that.
func HandleSink(w *Worker, queue string, sink posthaste.Sink, options ...Option) {
	sub := &subscription{batch: sinkBatch}
	if sink != nil {
		sub.many = sinkCalls{sink}
	}
	w.add(queue, sub, options)
}

func (w *Worker) add(queue string, sub *subscription, options []Option) {
	sub.ref = posthaste.QueueRef{Queue: queue, Subscription: posthaste.DefaultSubscription}
	if sub.concurrency == 0 {
		sub.concurrency = w.config.Concurrency
	}
	for _, o := range options {
		o(sub)
	}
	w.subs = append(w.subs, sub)
}

// Reads lists what the worker's handlers read, in the order in which they were
// registered.
func (w *Worker) Reads() []posthaste.QueueRef {
	refs := make([]posthaste.QueueRef, len(w.subs))
	for i, s := range w.subs {
		refs[i] = s.ref
	}
	return refs
}

// check lists every fault of the configuration and the handlers.
func (w *Worker) check() error {
	faults := []error{w.config.check()}
	fault := func(bad bool, field, format string, args ...any) {
		if bad {
			faults = append(faults, posthaste.Invalidf(field, format, args...))
		}
	}
	fault(len(w.subs) == 0, "queue", "the worker has no handler: register one with Handle before Run")
	seen := map[posthaste.QueueRef]bool{}
	for _, s := range w.subs {
		q := s.ref.Queue
		faults = append(faults, posthaste.CheckName("queue", q), posthaste.CheckName("subscription", s.ref.Subscription))
		fault(s.handler == nil && s.many == nil, "handler", "the handler of queue %q is nil", q)
		fault(s.concurrency < 1 || s.concurrency > 100_000, "Concurrency", "Concurrency of queue %q must be 1 to 100000, got %d", q, s.concurrency)
		fault(s.batch < 1 || s.batch > posthaste.MaxPlaces, "BatchSize", "BatchSize of queue %q must be 1 to %d, got %d", q, posthaste.MaxPlaces, s.batch)
		fault(s.sized && s.handler != nil, "BatchSize", "the handler of queue %q gets single messages, and no BatchSize: use HandleBatch", q)
		_, sink := s.many.(sinkCalls)
		fault(sink && len(s.middleware) > 0, "Middleware", "middleware wraps handlers, and queue %q has a sink", q)
		for i, m := range s.middleware {
			fault(m == nil, "Middleware", "Middleware %d of queue %q is nil", i+1, q)
		}
		fault(seen[s.ref], "queue", "subscription %q of queue %q has two handlers", s.ref.Subscription, q)
		seen[s.ref] = true
	}
	return errors.Join(faults...)
}

// Started is closed once the worker is registered and claims messages.
func (w *Worker) Started() <-chan struct{} { return w.started }

// Run handles messages until ctx ends. Then it claims nothing more, hands back
// what has not started, lets handlers finish within Config.Grace, records their
// outcomes, ends its registration and returns nil. Handlers that need longer
// are cancelled and left behind; their messages run again elsewhere.
//
// Run returns an error only where it cannot start: wrong configuration, a queue
// that does not exist, a schema that does not fit, missing privileges. A store
// that is away is waited for, at the start as later. Run may be called once.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.check(); err != nil {
		return err
	}
	if !w.running.CompareAndSwap(false, true) {
		return &posthaste.Error{Code: posthaste.Conflict, Message: "Run was called before on this worker", Hint: "make a new one with New"}
	}
	for _, s := range w.subs {
		s.ready()
		s.wrap(slices.Concat(w.config.Middleware, s.middleware))
	}
	rt := newRuntime(w)
	if err := rt.prepare(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	rt.start()
	close(w.started)
	<-ctx.Done()
	rt.shutdown()
	return nil
}
