package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// drainPatience is how long what was sent may take to be settled after the
// last send, before the run counts as one that lost something: the default of
// Options.drain.
const drainPatience = 10 * time.Second

// fillers is how many goroutines send what is to wait.
const fillers = 2

// payload is JSON, the default content type.
var payload = json.RawMessage(`{"text":"` + string(bytes.Repeat([]byte("x"), payloadBytes-len(`{"text":""}`))) + `"}`)

// settled counts what a worker has settled as done, once that is committed.
type settled struct {
	posthaste.Store
	count   atomic.Int64
	last    atomic.Int64 // when, on the process's monotonic clock
	changed chan struct{}
}

var epoch = time.Now()

func watchSettled(engine posthaste.Store) *settled {
	return &settled{Store: engine, changed: make(chan struct{}, 1)}
}

// Settle implements [posthaste.Engine].
func (s *settled) Settle(ctx context.Context, settlements []posthaste.Settlement) ([]posthaste.SettleResult, error) {
	results, err := s.Store.Settle(ctx, settlements)
	s.add(results)
	return results, err
}

// add counts what was settled as done.
func (s *settled) add(results []posthaste.SettleResult) {
	n := int64(0)
	for i := range results {
		if results[i].Settled && results[i].Outcome == posthaste.OutcomeDone {
			n++
		}
	}
	if n > 0 {
		s.last.Store(int64(time.Since(epoch)))
		s.count.Add(n)
		select {
		case s.changed <- struct{}{}:
		default:
		}
	}
}

// sends is what messages are sent by.
type sends interface {
	Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.MessageID, error)
}

// traffic is one process that sends to a queue and handles what it sent.
type traffic struct {
	run     *run
	queue   string
	keys    []string // of its messages, in turn; none without
	engine  posthaste.Store
	client  sends
	settled *settled
	// What the worker reads beside the queue's default subscription.
	also []posthaste.QueueRef
	// copies is how many deliveries each message has: one for each subscription.
	copies int64
	// What follows the worker; nil, nothing does.
	telemetry posthaste.Telemetry
	tracing   posthaste.Tracing
	passed    chan struct{} // pass has ended
	handled   atomic.Int64  // calls of the handler
	sent      atomic.Int64
	cancel    context.CancelFunc
	ended     chan error

	mu     sync.Mutex
	room   sync.Cond // signalled when settled has grown, or the run ends
	closed bool
}

// newTraffic makes the queue; a worker is yet to be started.
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

// startTraffic makes the queue and starts the worker.
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
		worker.Handle(w, ref.Queue, func(context.Context, posthaste.Delivery[json.RawMessage]) error {
			t.handled.Add(1)
			return nil
		}, worker.WithSubscription(ref.Subscription))
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

// pass tells waiting senders that there is room.
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

// rest ends the worker, if there is one; work may start another.
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

// batches sends batches for a while, as fast as the worker settles: senders
// wait while more than outstanding messages are unsettled. With drain it then
// waits for the last settle of what was sent.
func (t *traffic) batches(ctx context.Context, during time.Duration, batch, outstanding int, drain bool) (stretch, error) {
	messages := make([]posthaste.Message, batch)
	for i := range messages {
		messages[i] = posthaste.Message{Queue: t.queue, Payload: payload}
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

// errFilled ends a sender that has nothing left to send.
var errFilled = errors.New("filled")

// send lets n goroutines call once until the time is over, or until once
// returns errFilled.
func (t *traffic) send(ctx context.Context, n int, during time.Duration, drain bool, once func(context.Context) (int64, error)) (stretch, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	before := t.sent.Load()
	begun := time.Since(epoch)
	var wait sync.WaitGroup
	for range n {
		wait.Go(func() {
			// Each at least once, for on a busy machine the time may be over by now.
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

// done counts messages that were settled. Of several subscriptions each settlement
// counts as its share of the message, so that one that lags behind is seen.
func (t *traffic) done() int64 { return t.settled.count.Load() / t.copies }

// unsettled counts messages that were sent and are not settled by all.
func (t *traffic) unsettled() int64 { return t.sent.Load() - t.done() }

// await waits until at most so many messages are unsettled. It returns false
// if ctx or the worker ended first.
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

// audit says what no figure may hide: messages that were not settled in time,
// and handler calls that are not one per message.
func (t *traffic) audit(r *run, complete bool) {
	sent, done, handled := t.sent.Load(), t.done(), t.handled.Load()
	switch {
	case !complete:
		r.invalid("%d of %d messages were not settled within %s of the last send", sent-done, sent, r.o.drain)
	case handled != sent*t.copies:
		r.invalid("%d messages were sent to %d subscriptions and the handler was called %d times", sent, t.copies, handled)
	}
}

// profiled runs f with a CPU profile if one was asked for and last is true.
func (r *run) profiled(last bool, f func() error) error {
	if r.o.Profile == "" || !last {
		return f()
	}
	file, err := os.Create(r.o.Profile)
	if err != nil {
		return fmt.Errorf("the CPU profile cannot be written: %w", err)
	}
	defer file.Close()
	if err := pprof.StartCPUProfile(file); err != nil {
		return fmt.Errorf("the CPU profile cannot be taken: %w", err)
	}
	defer pprof.StopCPUProfile()
	return f()
}

// quiet lets only warnings and errors through, whatever the logger's level: a
// line for each message would be measured too.
func quiet(log *slog.Logger) *slog.Logger {
	return slog.New(warnings{log.Handler()})
}

type warnings struct{ slog.Handler }

// Enabled implements [slog.Handler].
func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}

// WithAttrs implements [slog.Handler].
func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }
