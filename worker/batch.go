package worker

import (
	"context"
	"fmt"
	"sync"

	"github.com/posthaste-mq/posthaste"
)

const (
	sinkBatch        = 100
	batchConcurrency = 4
)

// HandleBatch registers a handler that gets several messages of a queue in one call: those
// that wait when the call begins, up to [WithBatchSize] (default 100). The worker never waits for
// a batch to fill: while as many calls run as [WithConcurrency] allows (default 4 here), messages
// gather for the next call.
//
// The handler returns an error or nil for each message, in order; a nil slice acknowledges
// all of them. A failed message neither fails nor repeats the others, and attempts are
// counted by message. slices.Repeat([]error{err}, len(batch)) fails all messages. So does a
// panic, and a result whose length differs from the batch's. The context ends at the queue's
// timeout, which applies to the call. Messages whose payload cannot be decoded do not reach
// the handler; each of them is dead-lettered. Call HandleBatch before [Worker.Run].
func HandleBatch[T any](w *Worker, queue string, h func(ctx context.Context, batch []posthaste.Delivery[T]) []error, options ...Option) {
	r := &route{batch: sinkBatch, concurrency: min(batchConcurrency, w.config.Concurrency)}
	if h != nil {
		r.many = &batchHandler[T]{handle: h, codecs: w.config.Codecs}
	}
	w.add(queue, r, options)
}

// sinkCalls calls a sink for the pool.
type sinkCalls struct{ posthaste.Sink }

func (s sinkCalls) deliver(ctx context.Context, _ func(int, error), items []posthaste.RawDelivery) []posthaste.SinkResult {
	return s.Deliver(ctx, items)
}

// batchHandler calls a batch handler for the pool.
type batchHandler[T any] struct {
	codecs []posthaste.Codec
	handle func(ctx context.Context, batch []posthaste.Delivery[T]) []error
	// around is join, wrapped in the middleware; nil without middleware.
	around posthaste.Handler
}

// wrap puts the middleware around each message of the handler's batches.
func (b *batchHandler[T]) wrap(chain func(posthaste.Handler) posthaste.Handler) {
	b.around = chain(b.join)
}

// batchOf is the batch of one call.
type batchOf[T any] struct {
	deliveries []posthaste.Delivery[T]
	places     []int // index of each delivery among the items of the call
	errs       []error
}

// add decodes a message into the batch. A panic of the decoder, such as a type's own
// UnmarshalJSON, fails that message only.
func (b *batchOf[T]) add(place int, d posthaste.RawDelivery, codecs []posthaste.Codec) error {
	var payload T
	err := protect(func() error { return posthaste.Permanent(posthaste.Decode(d, &payload, codecs...)) }, func(error) {})
	if err != nil {
		return err
	}
	b.deliveries = append(b.deliveries, posthaste.Delivery[T]{RawDelivery: d, Payload: payload})
	b.places = append(b.places, place)
	return nil
}

// call gives the batch to the handler and stores the answer of each delivery in errs, which
// has one element for each item.
func (b *batchHandler[T]) call(ctx context.Context, batch *batchOf[T]) {
	if len(batch.deliveries) == 0 {
		return
	}
	answers := b.handle(ctx, batch.deliveries)
	var err error
	if answers != nil && len(answers) != len(batch.places) {
		err = fmt.Errorf("the handler answered %d of %d messages, so that none of its answers counts", len(answers), len(batch.places))
	}
	for i, place := range batch.places {
		if batch.errs[place] = err; err == nil && answers != nil {
			batch.errs[place] = answers[i]
		}
	}
}

func (b *batchHandler[T]) deliver(ctx context.Context, note func(int, error), items []posthaste.RawDelivery) []posthaste.SinkResult {
	if b.around != nil {
		return b.deliverAround(ctx, note, items)
	}
	batch := &batchOf[T]{deliveries: make([]posthaste.Delivery[T], 0, len(items)), places: make([]int, 0, len(items)), errs: make([]error, len(items))}
	for i := range items {
		if err := batch.add(i, items[i], b.codecs); err != nil {
			batch.errs[i] = err
			note(i, err) // which counts whatever the call returns
		}
	}
	b.call(ctx, batch)
	return answered(batch.errs)
}

func answered(errs []error) []posthaste.SinkResult {
	results := make([]posthaste.SinkResult, len(errs))
	for i, err := range errs {
		results[i].Err = err
	}
	return results
}

// gathering collects the messages of a batch, each of which waits inside its middleware
// until the handler has answered.
type gathering[T any] struct {
	mu      sync.Mutex
	batch   batchOf[T]
	pending int           // messages that may still join
	full    chan struct{} // closed when no message may join any more
	done    chan struct{} // closed when the handler has answered
}

// memberKey is the context key of a message's member.
type memberKey struct{}

// member is one message of a gathering.
type member[T any] struct {
	gathering *gathering[T]
	place     int
	once      sync.Once
}

// arrived says that the message has joined, or never will.
func (m *member[T]) arrived() {
	m.once.Do(func() {
		g := m.gathering
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.pending--; g.pending == 0 {
			close(g.full)
		}
	})
}

// deliverAround runs the middleware of all messages at the same time, each on a goroutine of
// its own, and the handler once every message has joined or left its middleware.
func (b *batchHandler[T]) deliverAround(ctx context.Context, note func(int, error), items []posthaste.RawDelivery) []posthaste.SinkResult {
	g := &gathering[T]{pending: len(items), full: make(chan struct{}), done: make(chan struct{}), batch: batchOf[T]{errs: make([]error, len(items))}}
	final := make([]error, len(items))
	var chains sync.WaitGroup
	for i := range items {
		chains.Go(func() {
			m := &member[T]{gathering: g, place: i}
			end := func(err error) {
				final[i] = err
				note(i, err)
				m.arrived()
			}
			exited := false
			err := protect(func() error { return b.around(context.WithValue(ctx, memberKey{}, m), items[i]) },
				func(err error) { exited = true; end(err) })
			if !exited {
				end(err)
			}
		})
	}
	<-g.full
	b.callGathering(ctx, g, &chains)
	return answered(final)
}

// callGathering calls the handler for the messages that joined, gives each its answer, and
// waits until the middleware of each has returned. The steps after the call are deferred
// because a handler that ends its goroutine ends this one.
func (b *batchHandler[T]) callGathering(ctx context.Context, g *gathering[T], chains *sync.WaitGroup) {
	defer chains.Wait()
	all := func(err error) {
		for _, place := range g.batch.places {
			g.batch.errs[place] = err
		}
	}
	defer close(g.done)
	err := protect(func() error { b.call(ctx, &g.batch); return nil }, all)
	if err != nil {
		all(err)
	}
}

// join is the handler that the middleware wraps. It adds a message to its batch and waits
// for the answer. A second call with the same message, for example by middleware that
// retries, is a batch of one.
func (b *batchHandler[T]) join(ctx context.Context, d posthaste.RawDelivery) error {
	m, ok := ctx.Value(memberKey{}).(*member[T])
	if !ok {
		return fmt.Errorf("middleware of a batch handler must pass on a context derived from the one it got")
	}
	g := m.gathering
	g.mu.Lock()
	select {
	case <-g.full:
		g.mu.Unlock()
		return b.alone(ctx, d)
	default:
	}
	err := g.batch.add(m.place, d, b.codecs)
	g.mu.Unlock()
	m.arrived()
	if err != nil {
		return err
	}
	<-g.done
	return g.batch.errs[m.place]
}

func (b *batchHandler[T]) alone(ctx context.Context, d posthaste.RawDelivery) error {
	one := &batchOf[T]{errs: make([]error, 1)}
	if err := one.add(0, d, b.codecs); err != nil {
		return err
	}
	b.call(ctx, one)
	return one.errs[0]
}
