package worker_test

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// inOrder is an engine whose queue is ordered as far as a worker can tell. Its first
// Settle waits, so that more gathers than the next can take at once.
type inOrder struct {
	posthaste.Store
	waits chan struct{}

	mu      sync.Mutex
	claimed map[string][]posthaste.DeliveryID // of each key, in order
	settled map[posthaste.DeliveryID]int      // by which call
	calls   int
}

func (e *inOrder) Claim(ctx context.Context, req posthaste.ClaimRequest) (posthaste.ClaimReply, error) {
	reply, err := e.Store.Claim(ctx, req)
	reply.InOrder = true
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, d := range reply.Deliveries {
		e.claimed[d.Key] = append(e.claimed[d.Key], d.ID)
	}
	return reply, err
}

func (e *inOrder) Settle(ctx context.Context, s []posthaste.Settlement) ([]posthaste.SettleResult, error) {
	select {
	case <-e.waits:
	case <-ctx.Done():
	}
	results, err := e.Store.Settle(ctx, s)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls++
	for i := range results {
		if _, before := e.settled[results[i].Delivery]; results[i].Settled && !before {
			e.settled[results[i].Delivery] = e.calls
		}
	}
	return results, err
}

// A crash between two calls of Settle must not keep a message of a key and lose the
// one before it, which would then be handled again after it.
func TestKeysAreSettledInOrder(t *testing.T) {
	settledInOrder(t, func(w *worker.Worker, handled *atomic.Int64) {
		worker.HandleRaw(w, queue, func(context.Context, posthaste.RawDelivery) error {
			time.Sleep(time.Microsecond) // lets others of the pool have a part
			handled.Add(1)
			return nil
		})
	})
}

// The same holds if the store refuses a receipt, and the outcome is recorded without it.
func TestKeysAreSettledInOrderBesideWhatIsRefused(t *testing.T) {
	settledInOrder(t, func(w *worker.Worker, handled *atomic.Int64) {
		worker.HandleSink(w, queue, saying(func(d *posthaste.RawDelivery) (r posthaste.SinkResult) {
			switch d.MessageID % 3 {
			case 0:
				r.Receipt = json.RawMessage(`{"a":`)
			case 1:
				r.Receipt = json.RawMessage(`{"a": 1}`)
			}
			handled.Add(1)
			return r
		}))
	})
}

// saying is a sink that says something of each message.
type saying func(d *posthaste.RawDelivery) posthaste.SinkResult

func (s saying) Deliver(_ context.Context, batch []posthaste.RawDelivery) (results []posthaste.SinkResult) {
	for i := range batch {
		results = append(results, s(&batch[i]))
	}
	return results
}

func (saying) Close() error { return nil }

func settledInOrder(t *testing.T, register func(w *worker.Worker, handled *atomic.Int64)) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		const keys, each = 100, 90
		e := &inOrder{Store: f.memory, waits: make(chan struct{}), claimed: map[string][]posthaste.DeliveryID{}, settled: map[posthaste.DeliveryID]int{}}
		messages := make([]posthaste.Message, keys*each)
		for i := range messages {
			messages[i] = posthaste.Message{Queue: queue, Payload: i, Key: strconv.Itoa(i % keys)}
		}
		_, err := f.memory.Send(f.ctx, messages...)
		f.must(err)
		var handled atomic.Int64
		f.run(e, worker.Config{}, func(w *worker.Worker) { register(w, &handled) })
		f.until("all are handled", func() bool { return handled.Load() >= keys*each })
		close(e.waits)
		f.until("all are settled", func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return len(e.settled) == keys*each
		})
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.calls < 3 {
			f.Fatalf("all was settled by %d calls, which proves nothing", e.calls)
		}
		for key, ids := range e.claimed {
			for i := 1; i < len(ids); i++ {
				if e.settled[ids[i]] < e.settled[ids[i-1]] {
					f.Fatalf("of key %s the %d. message was settled by call %d, the one before it by call %d", key, i+1, e.settled[ids[i]], e.settled[ids[i-1]])
				}
			}
		}
	})
}

// A handler that returns in the moment in which its worker gives it up must not change the
// outcome that the worker is putting together. The outcomes of ordered keys are then recorded,
// each once. The race detector finds a violation.
func TestGivenUpWhileItReturns(t *testing.T) {
	const n = 2000
	inBubble(t, posthaste.QueueOptions{Timeout: time.Millisecond, MaxAttempts: 1}, func(f *fixture) {
		e := &inOrder{Store: f.memory, waits: make(chan struct{}), claimed: map[string][]posthaste.DeliveryID{}, settled: map[posthaste.DeliveryID]int{}}
		close(e.waits)
		f.run(e, worker.Config{Overrun: time.Millisecond, Tracing: freeing{}}, func(w *worker.Worker) {
			worker.HandleRaw(w, queue, func(ctx context.Context, d posthaste.RawDelivery) error {
				if d.Kind == "stays" {
					<-ctx.Value(freed{}).(free).given
				}
				return nil
			}, worker.WithConcurrency(100))
		})
		for i := range n {
			kind := ""
			if i%4 == 0 {
				kind = "stays"
			}
			_, err := f.memory.Send(f.ctx, posthaste.Message{Queue: queue, Payload: i, Key: strconv.Itoa(i), Kind: kind})
			f.must(err)
		}
		f.until("all are settled", func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return len(e.settled) == n
		})
	})
}

// freeing is tracing that lets a handler go when its message gets its outcome.
type freeing struct{ posthaste.Tracing }

type freed struct{}

type free struct {
	given chan struct{}
	once  *sync.Once
}

func (freeing) Handling(ctx context.Context, deliveries []posthaste.RawDelivery) (context.Context, []posthaste.Trace) {
	one := free{make(chan struct{}), new(sync.Once)}
	return context.WithValue(ctx, freed{}, one), slices.Repeat([]posthaste.Trace{one}, len(deliveries))
}

func (f free) Handled(error)                             { f.once.Do(func() { close(f.given) }) }
func (free) Settled(time.Time, posthaste.Outcome, error) {}
