package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

func quick() posthaste.QueueOptions {
	return posthaste.QueueOptions{MaxAttempts: 3, BackoffBase: time.Millisecond, BackoffMax: time.Millisecond}
}

func TestHandlesWhatWaitsAndWhatComes(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		ids := f.send(queue, 3000)
		l := f.run(f.memory, worker.Config{}, func(w *worker.Worker) { worker.HandleRaw(w, queue, f.seen.handle) })
		f.now("what waited is handled", func() bool { return f.seen.count() == 3000 })
		for range 20 {
			ids = append(ids, f.send(queue, 1)...)
			f.now("what came is handled", func() bool { return f.seen.count() == len(ids) })
		}
		l.stop()
		f.eachOnce(ids)
		f.nowState(posthaste.StateDone, ids...)
		if t := f.elapsed(); t != 0 {
			f.Errorf("it took %s, want no message to wait for a timer", t)
		}
		if n := f.seen.told(posthaste.EventSettled, posthaste.OutcomeDone); n != len(ids) {
			f.Errorf("%d successes were reported, want %d", n, len(ids))
		}
		if n := f.seen.told(posthaste.EventClaimed, ""); n != len(ids) {
			f.Errorf("%d claimed messages were reported, want %d", n, len(ids))
		}
		if n := f.seen.told(posthaste.EventDuplicate, ""); n != 0 {
			f.Errorf("%d duplicates were reported", n)
		}
	})
}

func TestTypedHandlersAndMiddleware(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		type order struct{ Item string }
		var got atomic.Value
		var wrapped atomic.Int32
		f.run(f.memory, worker.Config{Middleware: []func(posthaste.Handler) posthaste.Handler{
			func(next posthaste.Handler) posthaste.Handler {
				return func(ctx context.Context, d posthaste.RawDelivery) error { wrapped.Add(1); return next(ctx, d) }
			},
		}}, func(w *worker.Worker) {
			worker.Handle(w, queue, func(_ context.Context, d posthaste.Delivery[order]) error {
				got.Store(d.Payload.Item)
				return nil
			})
		})
		ids, err := posthaste.IDs(f.memory.Send(f.ctx, posthaste.Message{Queue: queue, Payload: order{"pen"}}, posthaste.Message{Queue: queue, Payload: []byte("no JSON")}))
		f.must(err)
		f.nowState(posthaste.StateDone, ids[0])
		f.nowState(posthaste.StateDead, ids[1]) // without another attempt
		if got.Load() != "pen" || wrapped.Load() != 2 {
			f.Errorf("payload %v, middleware called %d times", got.Load(), wrapped.Load())
		}
	})
}

func TestOneReaderKeepsOrder(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		ids := f.send(queue, 500)
		var mu sync.Mutex
		var order []posthaste.MessageID
		f.run(f.memory, worker.Config{}, func(w *worker.Worker) {
			worker.HandleRaw(w, queue, func(_ context.Context, d posthaste.RawDelivery) error {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, d.MessageID)
				return nil
			}, worker.WithConcurrency(1))
		})
		f.nowState(posthaste.StateDone, ids...)
		if fmt.Sprint(order) != fmt.Sprint(ids) {
			f.Error("a single handler did not get the messages in order")
		}
	})
}

// TestTH5_SlowMessageDelaysOnlyItself checks that while some handlers are stuck, all other
// messages are handled and settled.
func TestTH5_SlowMessageDelaysOnlyItself(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		ids := f.send(queue, 1000)
		release := make(chan struct{})
		slow := map[posthaste.MessageID]bool{ids[0]: true, ids[300]: true, ids[777]: true}
		f.run(f.memory, worker.Config{Concurrency: 4}, func(w *worker.Worker) {
			worker.HandleRaw(w, queue, func(ctx context.Context, d posthaste.RawDelivery) error {
				if slow[d.MessageID] {
					<-release
				}
				return f.seen.handle(ctx, d)
			})
		})
		for _, id := range ids {
			if !slow[id] {
				f.nowState(posthaste.StateDone, id)
			}
		}
		for id := range slow {
			f.nowState(posthaste.StateRunning, id)
		}
		close(release)
		f.nowState(posthaste.StateDone, ids...)
		f.eachOnce(ids)
	})
}

// TestQueuesShareThePool checks that a queue that never runs out of messages leaves goroutines
// of the pool to another queue.
func TestQueuesShareThePool(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		f.create("other", posthaste.QueueOptions{})
		var stop atomic.Bool
		var busy atomic.Int64
		f.send(queue, 2000)
		f.run(f.memory, worker.Config{Concurrency: 2}, func(w *worker.Worker) {
			worker.HandleRaw(w, queue, func(ctx context.Context, d posthaste.RawDelivery) error {
				busy.Add(1)
				if !stop.Load() {
					time.Sleep(time.Millisecond)
					_, err := f.memory.Send(ctx, posthaste.Message{Queue: queue}) // replaces this message
					return err
				}
				return nil
			})
			worker.HandleRaw(w, "other", f.seen.handle)
		})
		f.after(10 * time.Millisecond)
		if busy.Load() == 0 {
			f.Fatal("the pool is idle")
		}
		sent := f.elapsed()
		ids := f.send("other", 50)
		f.untilState(posthaste.StateDone, ids...)
		if t := f.elapsed() - sent; t > 5*time.Millisecond {
			f.Errorf("they were handled after %s, which is more than five runs of the busy queue's handler", t)
		}
		stop.Store(true)
	})
}

func TestFailuresRetriesAndDeadLetters(t *testing.T) {
	inBubble(t, quick(), func(f *fixture) {
		f.create("later", posthaste.QueueOptions{})
		var runs atomic.Int32
		l := f.run(f.memory, worker.Config{}, func(w *worker.Worker) {
			worker.HandleRaw(w, queue, func(_ context.Context, d posthaste.RawDelivery) error {
				runs.Add(1)
				switch string(d.Payload) {
				case "0":
					return errors.New("")
				case "1":
					return posthaste.Permanent(errors.New("never"))
				case "2":
					panic("oh no")
				default:
					goruntime.Goexit()
					return nil
				}
			}, worker.WithConcurrency(1))
			worker.HandleRaw(w, "later", func(context.Context, posthaste.RawDelivery) error {
				return posthaste.RetryAfter(errors.New("busy"), time.Hour)
			})
		})
		ids := f.send(queue, 4)
		later := f.send("later", 1)
		f.nowState(posthaste.StateRetrying, later...)
		f.after(2 * time.Millisecond) // longer than the backoffs of two retries
		f.nowState(posthaste.StateDead, ids...)
		l.stop() // events follow after the store has recorded an outcome
		if n := runs.Load(); n != 3+1+3+3 {
			f.Errorf("%d attempts, want 10", n)
		}
		for i, want := range []string{"without a text", "never", "oh no", "Goexit"} {
			for _, a := range f.state(ids[i]).Attempts {
				if !strings.Contains(a.Error, want) {
					f.Errorf("message %d: error %q, want it to contain %q", i, a.Error, want)
				}
			}
		}
		if stack := f.seen.logged("stack"); !strings.Contains(stack, "TestFailuresRetriesAndDeadLetters") {
			f.Errorf("the stack in the log is %q", stack)
		}
		if in := f.state(later[0]).DueAt.Sub(f.began); in != time.Hour {
			f.Errorf("retried in %s, want an hour", in)
		}
		if dead, retried := f.seen.told(posthaste.EventSettled, posthaste.OutcomeDead), f.seen.told(posthaste.EventSettled, posthaste.OutcomeRetried); dead != 4 || retried != 7 {
			f.Errorf("%d dead and %d retried were reported, want 4 and 7", dead, retried)
		}
	})
}

func TestTimeouts(t *testing.T) {
	o := quick()
	o.MaxAttempts, o.Timeout = 1, 200*time.Millisecond
	inBubble(t, o, func(f *fixture) {
		release := make(chan struct{})
		var stubborn atomic.Int32
		l := f.run(f.memory, worker.Config{Overrun: 4 * time.Second, Grace: time.Second}, func(w *worker.Worker) {
			worker.HandleRaw(w, queue, func(ctx context.Context, d posthaste.RawDelivery) error {
				switch string(d.Payload) {
				case "0": // returns when its context ends
					<-ctx.Done()
					return fmt.Errorf("gave up: %w", ctx.Err())
				case "1": // ignores its context
					stubborn.Add(1)
					<-release
					stubborn.Add(1)
					return nil
				}
				return f.seen.handle(ctx, d)
			}, worker.WithConcurrency(1))
		})
		ids := f.send(queue, 5)
		f.after(200*time.Millisecond - 1)
		f.nowState(posthaste.StateRunning, ids[0])
		f.after(1)
		f.nowState(posthaste.StateDead, ids[0])
		// Message 1 starts now, and its overrun ends after 4.4 s. The pool checks for
		// overruns each 500 ms.
		f.after(4500*time.Millisecond - 1 - f.elapsed())
		f.nowState(posthaste.StateRunning, ids[1])
		f.after(1)
		f.nowState(posthaste.StateDead, ids[1])
		f.nowState(posthaste.StateDone, ids[2:]...) // although the pool has one place only
		if text := f.state(ids[0]).Attempts[0].Error; !strings.Contains(text, "timed out after 200ms") {
			f.Errorf("error %q", text)
		}
		if text := f.state(ids[1]).Attempts[0].Error; !strings.Contains(text, "did not return") {
			f.Errorf("error %q", text)
		}
		close(release)
		f.now("the stubborn handler returns", func() bool { return stubborn.Load() == 2 })
		more := f.send(queue, 10)
		f.untilState(posthaste.StateDone, more[2:]...)
		l.stop()
		if s := f.state(ids[1]).State; s != posthaste.StateDead {
			f.Errorf("after the abandoned handler returned, its message is %s", s)
		}
		if n := f.seen.told(posthaste.EventDuplicate, ""); n != 0 {
			f.Errorf("%d duplicates were reported", n)
		}
	})
}

// TestDU2_GracefulStop checks that running handlers finish and their messages are settled, that
// messages that have not started can be claimed at once and did not use up an attempt, and
// that the registration ends.
func TestDU2_GracefulStop(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		ids := f.send(queue, 200)
		release := make(chan struct{})
		var running atomic.Int32
		l := f.run(f.memory, worker.Config{Concurrency: 3}, func(w *worker.Worker) {
			worker.HandleRaw(w, queue, func(ctx context.Context, d posthaste.RawDelivery) error {
				running.Add(1)
				<-release
				if ctx.Err() != nil {
					f.Error("the context of a handler ended within the grace time")
				}
				return f.seen.handle(ctx, d)
			})
		})
		f.now("the pool is full", func() bool { return running.Load() == 3 })
		l.cancel()
		other, err := f.memory.Register(f.ctx, posthaste.WorkerInfo{Lease: time.Minute})
		f.must(err)
		synctest.Wait()
		reply, err := f.memory.Claim(f.ctx, posthaste.ClaimRequest{Worker: other, Number: 1, QueueRef: posthaste.QueueRef{Queue: queue}, Max: 500})
		f.must(err)
		if n := len(reply.Deliveries); n != 197 || !l.runs() {
			f.Errorf("%d of the 197 messages that had not started can be claimed while the others still run", n)
		}
		for _, d := range reply.Deliveries {
			if d.Attempt != 1 {
				f.Errorf("message %d has attempt %d: a release must not count", d.MessageID, d.Attempt)
			}
		}
		close(release)
		l.stop()
		if f.seen.count() != 3 || running.Load() != 3 {
			f.Errorf("%d handled, %d started, want 3", f.seen.count(), running.Load())
		}
		for _, id := range ids {
			want := posthaste.StateRunning // by the other worker
			if f.seen.handled[id] == 1 {
				want = posthaste.StateDone
			}
			if s := f.state(id).State; s != want {
				f.Errorf("message %d is %s, want %s", id, s, want)
			}
		}
		workers, err := f.memory.Workers(f.ctx)
		f.must(err)
		for _, w := range workers {
			if w.ID != other && w.LostAt.IsZero() {
				f.Errorf("worker %d is still registered", w.ID)
			}
		}
	})
}

func TestHA3_R6_GraceEnds(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		ids := f.send(queue, 2)
		var running atomic.Int32
		release := make(chan struct{})
		defer close(release)
		l := f.run(f.memory, worker.Config{Grace: 10 * time.Millisecond}, func(w *worker.Worker) {
			worker.HandleRaw(w, queue, func(ctx context.Context, d posthaste.RawDelivery) error {
				running.Add(1)
				if string(d.Payload) == "0" {
					<-ctx.Done() // returns when its context ends
					return ctx.Err()
				}
				<-release // ignores its context
				return nil
			})
		})
		f.now("both run", func() bool { return running.Load() == 2 })
		l.stop()
		if t := f.elapsed(); t != 10*time.Millisecond+time.Second {
			f.Errorf("it stopped after %s, want the grace time and a second for handlers to return", t)
		}
		// R6: returning because the worker stops is no attempt. What ignores its context is lost.
		if s := f.state(ids[0]); s.State != posthaste.StateReady || s.Attempts[0].Outcome != posthaste.OutcomeReleased {
			f.Errorf("the message whose handler returned is %+v, want it released", s)
		}
		if s := f.state(ids[1]); s.State != posthaste.StateRetrying || s.Attempts[0].Outcome != posthaste.OutcomeLost {
			f.Errorf("the message whose handler did not return is %+v, want it lost", s)
		}
	})
}

func TestSinkGetsBatches(t *testing.T) {
	inBubble(t, quick(), func(f *fixture) {
		sink := &testSink{}
		ids := f.send(queue, 400)
		f.run(f.memory, worker.Config{}, func(w *worker.Worker) {
			worker.HandleSink(w, queue, sink, worker.WithBatchSize(50), worker.WithConcurrency(2))
		})
		f.after(2 * time.Millisecond) // longer than the backoffs of two retries
		for i, id := range ids {
			switch i {
			case 7:
				f.nowState(posthaste.StateDead, id)
				// It may have been in a batch whose call panicked, too.
				if a := f.state(id).Attempts; string(a[len(a)-1].Receipt) != `{"code":550}` {
					f.Errorf("receipt %s", a[len(a)-1].Receipt)
				}
			default:
				f.nowState(posthaste.StateDone, id)
			}
		}
		// It may have been in a batch whose call panicked, and then came twice.
		if a := f.state(ids[9]).Attempts; a[len(a)-1].Receipt != nil {
			f.Errorf("a receipt that is not JSON: %+v, want done without it", a)
		}
		if most := sink.most.Load(); most < 2 || most > 50 {
			f.Errorf("the largest batch had %d, want 2 to 50", most)
		}
	})
}

type testSink struct{ most, calls atomic.Int64 }

func (s *testSink) Deliver(_ context.Context, batch []posthaste.RawDelivery) []posthaste.SinkResult {
	s.most.Store(max(s.most.Load(), int64(len(batch))))
	switch s.calls.Add(1) {
	case 3:
		panic("the sink broke")
	case 4:
		return nil // answers nothing
	}
	results := make([]posthaste.SinkResult, len(batch))
	for i, d := range batch {
		switch string(d.Payload) {
		case "7":
			results[i] = posthaste.SinkResult{Err: posthaste.Permanent(errors.New("550 no such user")), Receipt: json.RawMessage(`{"code":550}`)}
		case "9":
			results[i].Receipt = json.RawMessage(`{"code":`)
		}
	}
	return results
}

func (s *testSink) Close() error { return nil }

func TestWrongConfigurationIsToldAtOnce(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		w := worker.New(f.memory, worker.Config{Concurrency: -1, Batch: 5000, Lease: time.Millisecond})
		worker.HandleRaw(w, "UPPER", nil)
		worker.HandleRaw(w, queue, f.seen.handle, worker.WithConcurrency(-5))
		err := w.Run(f.ctx)
		for _, field := range []string{"Concurrency", "Batch", "Lease", "queue", "handler"} {
			found := false
			for _, e := range flatten(err) {
				found = found || e.Field == field
			}
			if !found {
				f.Errorf("error %v does not name %s", err, field)
			}
		}
		w = worker.New(f.memory, worker.Config{})
		worker.HandleRaw(w, queue, f.seen.handle, worker.WithBatchSize(10))
		worker.HandleRaw(w, queue, f.seen.handle, worker.WithMiddleware(nil))
		worker.HandleSink(w, "sinks", &testSink{}, worker.WithMiddleware(func(h posthaste.Handler) posthaste.Handler { return h }))
		worker.HandleBatch[int](w, "batches", nil, worker.WithBatchSize(5000))
		err = w.Run(f.ctx)
		for _, fault := range []string{"BatchSize/not allowed", "Middleware/is nil", "Middleware/has a sink", "handler/is nil", "BatchSize/1 to 4096", "queue/two handlers"} {
			field, text, _ := strings.Cut(fault, "/")
			if !slices.ContainsFunc(flatten(err), func(e *posthaste.Error) bool { return e.Field == field && strings.Contains(e.Message, text) }) {
				f.Errorf("error %v does not mention %s", err, fault)
			}
		}
		w = worker.New(f.memory, worker.Config{})
		worker.HandleRaw(w, queue, f.seen.handle, worker.WithSubscription("unknown"))
		if err := w.Run(f.ctx); posthaste.CodeOf(err) != posthaste.CodeNotFound || !strings.Contains(err.Error(), "subscription") {
			f.Errorf("unknown subscription: %v", err)
		}
		w = worker.New(f.memory, worker.Config{})
		worker.HandleRaw(w, "unknown", f.seen.handle)
		if err := w.Run(f.ctx); posthaste.CodeOf(err) != posthaste.CodeNotFound {
			f.Errorf("unknown queue: %v", err)
		}
		l := f.run(f.memory, worker.Config{}, func(w *worker.Worker) { worker.HandleRaw(w, queue, f.seen.handle) })
		if err := l.worker.Run(f.ctx); posthaste.CodeOf(err) != posthaste.CodeConflict {
			f.Errorf("a second Run: %v", err)
		}
	})
}

// flatten returns the errors that were joined into err.
func flatten(err error) (all []*posthaste.Error) {
	var e *posthaste.Error
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			all = append(all, flatten(err)...)
		}
	} else if errors.As(err, &e) {
		all = append(all, e)
	}
	return all
}
