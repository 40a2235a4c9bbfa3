package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// fillers is the number of goroutines that send waiting messages.
const fillers = 2

// sends sends messages: an engine, or a client.
type sends interface {
	Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.Sent, error)
}

// traffic sends to a queue and handles the messages in the same process.
type traffic struct {
	run     *run
	queue   string
	keys    []string // of its messages, in turn; may be empty
	kinds   []string // of its messages, in turn; may be empty. The worker has a handler for each
	engine  posthaste.Store
	client  sends
	settled *settled
	// also are the worker's subscriptions besides the default one.
	also []posthaste.QueueRef
	// copies is the number of deliveries of each message: one for each subscription.
	copies int64
	// The telemetry of the worker; may be nil.
	telemetry posthaste.Telemetry
	tracing   posthaste.Tracing
	passed    chan struct{} // pass has ended
	handled   atomic.Int64  // calls of the handler
	sent      atomic.Int64
	cancel    context.CancelFunc
	ended     chan error

	mu     sync.Mutex
	room   sync.Cond // signaled when settled has grown, or the run ends
	closed bool
}

// newTraffic creates the queue, without a worker.
func newTraffic(ctx context.Context, r *run, at home, queue string, o posthaste.QueueOptions) (*traffic, error) {
	engine, err := at.open(ctx, r.o.Log)
	if err != nil {
		return nil, err
	}
	if err := engine.CreateQueue(ctx, queue, o); err != nil {
		engine.Close()
		return nil, err
	}
	t := &traffic{run: r, queue: queue, engine: engine, client: posthaste.NewClient(engine),
		settled: watchSettled(engine), copies: 1, ended: make(chan error, 1)}
	t.room.L = &t.mu
	return t, nil
}

// startTraffic creates the queue and starts the worker.
func startTraffic(ctx context.Context, r *run, at home, queue string, o posthaste.QueueOptions) (*traffic, error) {
	t, err := newTraffic(ctx, r, at, queue, o)
	if err != nil {
		return nil, err
	}
	if err := t.work(ctx); err != nil {
		return nil, errors.Join(err, t.stop())
	}
	return t, nil
}

// work starts the worker.
func (t *traffic) work(ctx context.Context) error {
	w := worker.New(t.settled, worker.Config{Logger: quiet(t.run.o.Log), Telemetry: t.telemetry, Tracing: t.tracing})
	for _, ref := range append([]posthaste.QueueRef{{Queue: t.queue, Subscription: posthaste.DefaultSubscription}}, t.also...) {
		handle := func(context.Context, posthaste.Delivery[json.RawMessage]) error {
			t.handled.Add(1)
			return nil
		}
		subscription := worker.WithSubscription(ref.Subscription)
		if len(t.kinds) == 0 {
			worker.Handle(w, ref.Queue, handle, subscription)
		}
		for _, kind := range t.kinds {
			worker.Handle(w, ref.Queue, handle, subscription, worker.WithKind(kind))
		}
	}
	ctx, t.cancel = context.WithCancel(ctx)
	go func() { t.ended <- w.Run(ctx) }()
	t.passed = make(chan struct{})
	go func() {
		defer close(t.passed)
		t.pass(ctx)
	}()
	select {
	case <-w.Started():
		return nil
	case err := <-t.ended:
		t.ended <- err
		if err == nil {
			err = errors.New("the worker ended before it had started")
		}
		return err
	}
}

// pass wakes up waiting senders when there is room.
func (t *traffic) pass(ctx context.Context) {
	for {
		select {
		case <-t.settled.changed:
		case <-ctx.Done():
			t.mu.Lock()
			t.closed = true
			t.mu.Unlock()
			t.room.Broadcast()
			return
		}
		t.mu.Lock()
		t.room.Broadcast()
		t.mu.Unlock()
	}
}

// rest ends the worker if there is one. Afterwards work may start another.
func (t *traffic) rest() error {
	if t.cancel == nil {
		return nil
	}
	t.cancel()
	err := <-t.ended
	<-t.passed
	t.cancel, t.closed = nil, false
	return err
}

// stop ends the worker and closes the engine.
func (t *traffic) stop() error {
	err := t.rest()
	t.engine.Close()
	return err
}

// stretch is one measured stretch of traffic.
type stretch struct {
	messages int64
	sending  time.Duration // from the first send to the last commit of one
	whole    time.Duration // from the first send to the last settle
	complete bool          // all was settled in time
}

// batches sends batches for some time, as fast as the worker settles: senders wait while more
// than outstanding messages are unsettled. With drain it then waits until all are settled.
func (t *traffic) batches(ctx context.Context, during time.Duration, batch, outstanding int, drain bool) (stretch, error) {
	messages := make([]posthaste.Message, batch)
	for i := range messages {
		messages[i] = posthaste.Message{Queue: t.queue, Payload: payload}
		if n := len(t.kinds); n > 0 {
			messages[i].Kind = t.kinds[i%n]
		}
	}
	var next atomic.Int64
	return t.send(ctx, t.run.o.Senders, during, drain, func(ctx context.Context) (int64, error) {
		if !t.await(ctx, int64(outstanding-batch)) {
			return 0, ctx.Err()
		}
		_, err := t.client.Send(ctx, t.keyed(messages, &next)...)
		return int64(batch), err
	})
}

// errFilled ends a sender that has sent all its messages.
var errFilled = errors.New("filled")

// send calls once repeatedly from n goroutines until the time is over, or until once returns
// errFilled.
func (t *traffic) send(ctx context.Context, n int, during time.Duration, drain bool, once func(context.Context) (int64, error)) (stretch, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	before := t.sent.Load()
	begun := time.Since(epoch)
	var wait sync.WaitGroup
	for range n {
		wait.Go(func() {
			// At least one time, because on a busy machine the time may already be over.
			for first := true; first || time.Since(epoch)-begun < during && ctx.Err() == nil; first = false {
				some, err := once(ctx)
				if errors.Is(err, errFilled) {
					return
				}
				if err != nil {
					cancel(fmt.Errorf("sending failed: %w", err))
					return
				}
				t.sent.Add(some)
			}
		})
	}
	wait.Wait()
	s := stretch{sending: time.Since(epoch) - begun, messages: t.sent.Load() - before}
	if err := context.Cause(ctx); err != nil {
		return s, err
	}
	if drain {
		limited, stop := context.WithTimeout(ctx, t.run.o.drain)
		defer stop()
		s.complete = t.await(limited, 0)
		s.whole = time.Duration(t.settled.last.Load()) - begun
	}
	return s, ctx.Err()
}

// done returns the number of settled messages. With several subscriptions each settlement
// counts as a share of its message, so that a subscription that lags behind has an effect.
func (t *traffic) done() int64 { return t.settled.count.Load() / t.copies }

// unsettled returns the number of messages that not all subscriptions have settled.
func (t *traffic) unsettled() int64 { return t.sent.Load() - t.done() }

// await waits until at most the given number of messages is unsettled. It returns false if ctx
// or the worker ended first.
func (t *traffic) await(ctx context.Context, unsettled int64) bool {
	enough := func() bool { return t.unsettled() <= unsettled }
	if enough() {
		return ctx.Err() == nil
	}
	defer context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.room.Broadcast()
	})()
	t.mu.Lock()
	defer t.mu.Unlock()
	for !enough() {
		if ctx.Err() != nil || t.closed {
			return false
		}
		t.room.Wait()
	}
	return true
}

// audit invalidates the result if messages were not settled in time, or if the handler was not
// called once per delivery.
func (t *traffic) audit(r *run, complete bool) {
	sent, done, handled := t.sent.Load(), t.done(), t.handled.Load()
	switch {
	case !complete:
		r.invalid("%d of %d messages were not settled within %s of the last send", sent-done, sent, r.o.drain)
	case handled != sent*t.copies:
		r.invalid("%d messages were sent to %d subscriptions and the handler was called %d times", sent, t.copies, handled)
	}
}

// warm warms up connections, statements and functions.
func (t *traffic) warm(ctx context.Context) error {
	r := t.run
	r.phase("warming up")
	_, err := t.batches(ctx, min(r.part(warming), time.Second), r.o.Batch, r.outstanding(), true)
	return err
}

// keyed returns messages with the next keys.
func (t *traffic) keyed(messages []posthaste.Message, next *atomic.Int64) []posthaste.Message {
	if len(t.keys) == 0 {
		return messages
	}
	out := make([]posthaste.Message, len(messages))
	from := next.Add(int64(len(out))) - int64(len(out))
	for i, m := range messages {
		m.Key = t.keys[(from+int64(i))%int64(len(t.keys))]
		out[i] = m
	}
	return out
}

func keysInTurn(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint("customer ", i)
	}
	return keys
}

// singles sends one message per call from many goroutines for some time.
func (t *traffic) singles(ctx context.Context, during time.Duration) (stretch, error) {
	message := posthaste.Message{Queue: t.queue, Payload: payload}
	return t.send(ctx, singles, during, true, func(ctx context.Context) (int64, error) {
		_, err := t.client.Send(ctx, message)
		return 1, err
	})
}

// fill sends n messages without a worker and returns how many it has sent in total.
func (t *traffic) fill(ctx context.Context, n int, patience time.Duration) (int, error) {
	const at = 10_000
	messages := make([]posthaste.Message, at)
	for i := range messages {
		messages[i] = posthaste.Message{Queue: t.queue, Payload: payload}
	}
	left := make(chan int, n/at+1)
	for rest := n; rest > 0; rest -= at {
		left <- min(rest, at)
	}
	close(left)
	_, err := t.send(ctx, fillers, patience, false, func(ctx context.Context) (int64, error) {
		some, ok := <-left
		if !ok {
			return 0, errFilled
		}
		_, err := t.client.Send(ctx, messages[:some]...)
		return int64(some), err
	})
	return int(t.sent.Load()), err
}
