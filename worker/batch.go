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

// many handles several messages in one call: a sink or a batch handler.
type many interface {
	// deliver answers each of items. What it knows of one of them before the
	// others it may note by r.call.answer.
	deliver(r *run, items []posthaste.RawDelivery) []posthaste.SinkResult
}

// HandleBatch registers a handler that gets several messages of a queue in one
// call: what waits when the call begins, up to [BatchSize] (default 100).
// Nothing waits for a batch to fill: while as many calls run as [Concurrency]
// allows (default 4 here), messages gather for the next one.
//
// The handler returns an error or nil for each message, in order; a nil slice
// acknowledges all of them. One that fails neither fails nor repeats its
// neighbours, and attempts are counted by message. slices.Repeat([]error{err},
// len(batch)) fails all; so does a panic, and another number of answers than
// messages. The context ends at the queue's timeout, which is for the call.
// Payloads that cannot be decoded never reach the handler: their messages
// become dead letters by themselves. Call HandleBatch before [Worker.Run].
func HandleBatch[T any](w *Worker, queue string, h func(ctx context.Context, batch []posthaste.Delivery[T]) []error, options ...Option) {
	sub := &subscription{batch: sinkBatch, concurrency: min(batchConcurrency, w.config.Concurrency)}
	if h != nil {
		sub.many = &batchHandler[T]{handle: h, codecs: w.config.Codecs}
	}
	w.add(queue, sub, options)
}

// sinkCalls is a sink as the pool calls it.
type sinkCalls struct{ posthaste.Sink }

func (s sinkCalls) deliver(r *run, items []posthaste.RawDelivery) []posthaste.SinkResult {
	return s.Deliver(r, items)
}

// batchHandler is a batch handler as the pool calls it.
type batchHandler[T any] struct {
	codecs []posthaste.Codec
	handle func(ctx context.Context, batch []posthaste.Delivery[T]) []error
	// around is join with the middleware around it; nil if there is none.
	around posthaste.Handler
}

// wrap puts the middleware around each message of the handler's batches.
func (b *batchHandler[T]) wrap(chain func(posthaste.Handler) posthaste.Handler) {
	b.around = chain(b.join)
}

// batchOf is one batch on its way to the handler.
type batchOf[T any] struct {
	deliveries []posthaste.Delivery[T]
	places     []int // of each among the items
	errs       []error
}

// add decodes a message into the batch. What breaks over a payload, such as a
// type's own UnmarshalJSON, fails that message alone.
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

// call gives the batch to the handler and puts an answer for each into errs,
// which are as many as there are items.
func (b *batchHandler[T]) call(ctx context.Context, batch *batchOf[T]) {
	if len(batch.deliveries) == 0 {
		return
	}
	answers := b.handle(ctx, batch.deliveries)
	var err error
	if answers != nil && len(answers) != len(batch.places) {
		err = fmt.Errorf("the handler answered %d of %d messages, so none of its answers can be trusted", len(answers), len(batch.places))
	}
	for i, place := range batch.places {
		if batch.errs[place] = err; err == nil && answers != nil {
			batch.errs[place] = answers[i]
		}
	}
}

func (b *batchHandler[T]) deliver(r *run, items []posthaste.RawDelivery) []posthaste.SinkResult {
	if b.around != nil {
		return b.deliverAround(r, items)
	}
	batch := &batchOf[T]{deliveries: make([]posthaste.Delivery[T], 0, len(items)), places: make([]int, 0, len(items)), errs: make([]error, len(items))}
	for i := range items {
		if err := batch.add(i, items[i], b.codecs); err != nil {
			batch.errs[i] = err
			r.call.answer(i, err) // whatever becomes of the call
		}
	}
	b.call(r, batch)
	return answered(batch.errs)
}

func answered(errs []error) []posthaste.SinkResult {
	results := make([]posthaste.SinkResult, len(errs))
	for i, err := range errs {
		results[i].Err = err
	}
	return results
}

// meeting is where the messages of a batch wait for each other, each within
// the middleware around it.
type meeting[T any] struct {
	mu     sync.Mutex
	batch  batchOf[T]
	absent int           // that may still come
	full   chan struct{} // closed when none can
	done   chan struct{} // closed when the handler has answered
}

// meetingKey finds a message's seat in its context.
type meetingKey struct{}

type seat[T any] struct {
	meeting *meeting[T]
	place   int
	once    sync.Once
}

// leave says that a message has come, or never will.
func (s *seat[T]) leave() {
	s.once.Do(func() {
		m := s.meeting
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.absent--; m.absent == 0 {
			close(m.full)
		}
	})
}

// deliverAround runs the middleware of all messages at the same time, each on
// a goroutine of its own, and the handler once all have come to it that will.
func (b *batchHandler[T]) deliverAround(r *run, items []posthaste.RawDelivery) []posthaste.SinkResult {
	m := &meeting[T]{absent: len(items), full: make(chan struct{}), done: make(chan struct{}), batch: batchOf[T]{errs: make([]error, len(items))}}
	final := make([]error, len(items))
	var chains sync.WaitGroup
	for i := range items {
		chains.Go(func() {
			s := &seat[T]{meeting: m, place: i}
			end := func(err error) {
				final[i] = err
				r.call.answer(i, err)
				s.leave()
			}
			exited := false
			err := protect(func() error { return b.around(context.WithValue(r, meetingKey{}, s), items[i]) },
				func(err error) { exited = true; end(err) })
			if !exited {
				end(err)
			}
		})
	}
	<-m.full
	b.callMeeting(r, m, &chains)
	return answered(final)
}

// callMeeting calls the handler for those who came, tells them whatever
// happened to it, and waits until each has made its answer of that. Deferred:
// a handler that ends its goroutine takes this one along.
func (b *batchHandler[T]) callMeeting(r *run, m *meeting[T], chains *sync.WaitGroup) {
	defer chains.Wait()
	all := func(err error) {
		for _, place := range m.batch.places {
			m.batch.errs[place] = err
		}
	}
	defer close(m.done)
	err := protect(func() error { b.call(r, &m.batch); return nil }, all)
	if err != nil {
		all(err)
	}
}

// join is what the middleware wraps: it takes a message into its batch. A
// further call with the same message, as of a middleware that tries again, is a
// batch of one.
func (b *batchHandler[T]) join(ctx context.Context, d posthaste.RawDelivery) error {
	s, ok := ctx.Value(meetingKey{}).(*seat[T])
	if !ok {
		return fmt.Errorf("a middleware did not pass on its context, by which a message finds its batch")
	}
	m := s.meeting
	m.mu.Lock()
	select {
	case <-m.full:
		m.mu.Unlock()
		return b.alone(ctx, d)
	default:
	}
	err := m.batch.add(s.place, d, b.codecs)
	m.mu.Unlock()
	s.leave()
	if err != nil {
		return err
	}
	<-m.done
	return m.batch.errs[s.place]
}

func (b *batchHandler[T]) alone(ctx context.Context, d posthaste.RawDelivery) error {
	one := &batchOf[T]{errs: make([]error, 1)}
	if err := one.add(0, d, b.codecs); err != nil {
		return err
	}
	b.call(ctx, one)
	return one.errs[0]
}
