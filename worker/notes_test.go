package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// A handler that stops at step 7 of 10, because its worker is lost, goes on at 7 elsewhere. What
// the first one records then is refused, and its context ends with that error as its cause.
func TestJB5_HandlerGoesOnAtItsCheckpoint(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{Timeout: 24 * time.Hour}, func(f *fixture) {
		f.send(queue, 1)
		steps := make(chan string, 100)
		late, cause := make(chan error, 1), make(chan error, 1)
		goOn := make(chan struct{})
		handler := func(name string, at int) func(context.Context, posthaste.Delivery[int]) error {
			return func(ctx context.Context, d posthaste.Delivery[int]) error {
				step, _, err := posthaste.Resume[int](d)
				if err != nil {
					return err
				}
				for ; step < 10; step++ {
					steps <- fmt.Sprint(name, step)
					if step == at {
						<-goOn // its worker is cut off meanwhile
						late <- d.Checkpoint(ctx, step+1)
						<-ctx.Done()
						cause <- context.Cause(ctx)
						return ctx.Err()
					}
					if err := d.Checkpoint(ctx, step+1); err != nil {
						return err
					}
				}
				return nil
			}
		}
		first := f.run(f.faults, worker.Config{Lease: time.Second}, func(w *worker.Worker) { worker.Handle(w, queue, handler("a", 7)) })
		f.until("step 7 begins", func() bool { return len(steps) == 8 })
		f.faults.set(func(call string) error {
			if call == "heartbeat" || call == "register" || call == "claim" {
				return errAway
			}
			return nil
		}, nil)
		f.run(f.memory, worker.Config{}, func(w *worker.Worker) { worker.Handle(w, queue, handler("b", -1)) })
		f.until("the other has done the rest", func() bool { return f.state(1).State == posthaste.StateDone })
		close(goOn)
		err := <-late
		if posthaste.CodeOf(err) != posthaste.CodeConflict {
			f.Errorf("the late checkpoint ended with %v", err)
		}
		if got := <-cause; !errors.Is(got, err) {
			f.Errorf("the cause of the context is %v, want %v", got, err)
		}
		first.stop()
		close(steps)
		var all []string
		for s := range steps {
			all = append(all, s)
		}
		if got := strings.Join(all, " "); got != "a0 a1 a2 a3 a4 a5 a6 a7 b7 b8 b9" {
			f.Errorf("steps %s", got)
		}
	})
}

// noted runs one message through a handler, and returns its attempts.
func (f *fixture) noted(handle func(ctx context.Context, d posthaste.RawDelivery) error) []posthaste.Attempt {
	f.Helper()
	id := f.send(queue, 1)[0]
	l := f.run(f.faults, worker.Config{}, func(w *worker.Worker) { worker.HandleRaw(w, queue, handle) })
	f.untilState(posthaste.StateDone, id)
	l.stop()
	return f.state(id).Attempts
}

func TestProgressAndResult(t *testing.T) {
	inBubble(t, quick(), func(f *fixture) {
		attempts := f.noted(func(ctx context.Context, d posthaste.RawDelivery) error {
			f.must(d.Progress(ctx, 0.5*float64(d.Attempt), fmt.Sprint("attempt ", d.Attempt)))
			f.must(d.SetResult(map[string]int{"rows": d.Attempt}))
			if err := d.SetResult(strings.Repeat("x", posthaste.MaxResultBytes)); posthaste.CodeOf(err) != posthaste.CodeTooLarge {
				f.Errorf("a large result ended with %v", err)
			}
			if err := d.Progress(ctx, 1.5, ""); posthaste.CodeOf(err) != posthaste.CodeInvalid {
				f.Errorf("a progress of 1.5 ended with %v", err)
			}
			if err := d.Checkpoint(ctx, func() {}); posthaste.CodeOf(err) != posthaste.CodeInvalid {
				f.Errorf("a checkpoint that is a function ended with %v", err)
			}
			if d.Attempt == 1 {
				return errors.New("once more")
			}
			return nil
		})
		if len(attempts) != 2 || attempts[0].Progress != 0.5 || attempts[0].ProgressText != "attempt 1" || attempts[0].Receipt != nil {
			f.Errorf("the first attempt of %+v", attempts)
		} else if attempts[1].Progress != 1 || string(attempts[1].Receipt) != `{"rows":2}` {
			f.Errorf("the second attempt of %+v", attempts)
		}
	})
}

// Log lines are stored while the handler runs and when it returns, with and without an error, and
// none is lost while the store is away.
func TestLogger(t *testing.T) {
	inBubble(t, quick(), func(f *fixture) {
		var id posthaste.MessageID
		attempts := f.noted(func(ctx context.Context, d posthaste.RawDelivery) error {
			id = d.MessageID
			log := d.Logger().With(slog.Int("attempt", d.Attempt))
			log.Info("one")
			log.WithGroup("row").Warn("two", slog.Int("number", 7))
			if d.Attempt == 1 {
				time.Sleep(time.Second)
				f.faults.set(func(call string) error {
					if call == "extend" {
						return errAway
					}
					return nil
				}, nil)
				if a := f.state(id).Attempts[0]; strings.Count(a.Log, "\n") != 2 {
					f.Errorf("while it runs, the log is %q", a.Log)
				}
				log.Info("three")
				time.Sleep(time.Second) // storing it fails
				f.faults.set(nil, nil)
				log.Error("four", slog.String("bad", "\x00\xff"))
				return errors.New("once more")
			}
			f.must(d.Checkpoint(ctx, 1))
			if a := f.state(id).Attempts[1]; strings.Count(a.Log, "\n") != 2 {
				f.Errorf("after a checkpoint the log is %q", a.Log)
			}
			log.Info("last")
			return nil
		})
		for i, want := range []string{"one two three four", "one two last"} {
			var got []string
			for line := range strings.Lines(attempts[i].Log) {
				_, text, _ := strings.Cut(line, "msg=")
				got = append(got, strings.Fields(text)[0])
				if !strings.Contains(line, fmt.Sprint("attempt=", i+1)) {
					f.Errorf("line %q", line)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(strings.Fields(want)) {
				f.Errorf("attempt %d logged %q, want %q", i+1, got, want)
			}
		}
	})
}

// Each message of a batch has notes of its own.
func TestNotesInBatches(t *testing.T) {
	inBubble(t, quick(), func(f *fixture) {
		ids := f.send(queue, 3)
		f.run(f.memory, worker.Config{}, func(w *worker.Worker) {
			worker.HandleBatch(w, queue, func(ctx context.Context, batch []posthaste.Delivery[int]) []error {
				for _, d := range batch {
					f.must(d.Checkpoint(ctx, d.Payload))
					f.must(d.SetResult(d.Payload))
					d.Logger().Info("mine", slog.Int("payload", d.Payload))
				}
				return nil
			})
		})
		f.untilState(posthaste.StateDone, ids...)
		for i, id := range ids {
			a := f.state(id).Attempts[0]
			if want := fmt.Sprint(i); string(a.Checkpoint) != want || string(a.Receipt) != want || !strings.Contains(a.Log, "payload="+want+"\n") || strings.Count(a.Log, "\n") != 1 {
				f.Errorf("message %d has %+v", i, a)
			}
		}
	})
}

// What keeps its delivery after it has returned can record nothing, and nor can handlers of
// at-most-once queues.
func TestNotesOutsideOfAHandler(t *testing.T) {
	inBubble(t, quick(), func(f *fixture) {
		var kept posthaste.RawDelivery
		f.noted(func(_ context.Context, d posthaste.RawDelivery) error { kept = d; return nil })
		if err := kept.Checkpoint(f.ctx, 1); posthaste.CodeOf(err) != posthaste.CodeConflict {
			f.Errorf("after its handler has returned: %v", err)
		}
		kept.Logger().Info("nothing")
		f.create("once", posthaste.QueueOptions{Mode: posthaste.AtMostOnce})
		f.send("once", 1)
		got := make(chan error, 1)
		f.run(f.memory, worker.Config{}, func(w *worker.Worker) {
			worker.HandleRaw(w, "once", func(ctx context.Context, d posthaste.RawDelivery) error {
				got <- d.Checkpoint(ctx, 1)
				return nil
			})
		})
		if err := <-got; posthaste.CodeOf(err) != posthaste.CodeUnsupported {
			f.Errorf("in an at-most-once queue: %v", err)
		}
		reply, err := f.memory.Receive(f.ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: queue}, Max: 1, Lease: time.Minute})
		f.must(err)
		if len(reply.Deliveries) != 0 {
			f.Errorf("received %d", len(reply.Deliveries))
		}
		if err := (posthaste.RawDelivery{ID: 7}).Checkpoint(f.ctx, 1); posthaste.CodeOf(err) != posthaste.CodeUnsupported {
			f.Errorf("of a delivery that no worker handles: %v", err)
		}
	})
}

// slowNotes makes each call that stores notes fail after five seconds.
func (f *fixture) slowNotes() {
	f.faults.set(func(call string) error {
		if call == "extend" {
			<-time.After(5 * time.Second)
			return errAway
		}
		return nil
	}, nil)
}

// A handler that returned in time succeeded, however long storing its last log lines takes.
func TestSlowLogDoesNotFailAHandler(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{Timeout: 2 * time.Second, MaxAttempts: 3, BackoffBase: time.Millisecond}, func(f *fixture) {
		f.slowNotes()
		id := f.send(queue, 1)[0]
		calls := 0
		l := f.run(f.faults, worker.Config{Overrun: 500 * time.Millisecond}, func(w *worker.Worker) {
			worker.HandleRaw(w, queue, func(_ context.Context, d posthaste.RawDelivery) error {
				calls++
				<-time.After(1900 * time.Millisecond)
				d.Logger().Info("done")
				return nil
			})
		})
		f.untilState(posthaste.StateDone, id)
		l.stop()
		f.after(5 * time.Second) // the last call ends
		if s := f.state(id); calls != 1 || len(s.Attempts) != 1 || s.Attempts[0].Error != "" {
			f.Errorf("the handler ran %d times, with attempts %+v", calls, s.Attempts)
		}
	})
}

// A handler that has settled its delivery itself goes on undisturbed. Of its log, the lines that were
// stored before are kept, and the worker tells of the others.
func TestLogOfAHandlerThatSettlesItself(t *testing.T) {
	inBubble(t, quick(), func(f *fixture) {
		id := f.send(queue, 1)[0]
		var over, progress error
		returned := make(chan struct{})
		l := f.run(f.memory, worker.Config{}, func(w *worker.Worker) {
			worker.HandleRaw(w, queue, func(ctx context.Context, d posthaste.RawDelivery) error {
				d.Logger().Info("before")
				<-time.After(time.Second)
				d.Logger().Info("after")
				_, err := f.memory.Settle(ctx, []posthaste.Settlement{{Delivery: d.ID, Outcome: posthaste.OutcomeDone}})
				f.must(err)
				select {
				case <-ctx.Done():
					over = context.Cause(ctx)
				case <-time.After(5 * time.Second):
				}
				progress = d.Progress(ctx, 1, "")
				close(returned)
				return nil
			}, worker.WithOwnTransaction())
		})
		<-returned
		l.stop()
		if over != nil {
			f.Errorf("its context ended with %v", over)
		}
		if posthaste.CodeOf(progress) != posthaste.CodeConflict || !strings.Contains(progress.Error(), "by the handler itself") {
			f.Errorf("a progress after that ended with %v", progress)
		}
		if a := f.state(id).Attempts; len(a) != 1 || strings.Count(a[0].Log, "\n") != 1 || !strings.Contains(a[0].Log, "before") {
			f.Errorf("attempts %+v", a)
		}
		if told := f.seen.logged("error"); !strings.Contains(told, "by the handler itself") {
			f.Errorf("the worker told %q", told)
		}
	})
}

// held delays the notes of one delivery.
type held struct {
	posthaste.Store
	delivery posthaste.DeliveryID // which waits
	wait     chan struct{}
}

func (h *held) Extend(ctx context.Context, req posthaste.ExtendRequest) ([]posthaste.SettleResult, error) {
	if slices.Contains(req.Deliveries, h.delivery) {
		<-h.wait
	}
	return h.Store.Extend(ctx, req)
}

// Notes of one queue that wait do not hold up those of others.
func TestNotesOfQueuesDoNotWaitForEachOther(t *testing.T) {
	inBubble(t, quick(), func(f *fixture) {
		f.create("other", quick())
		id := f.send(queue, 1)[0]
		engine := &held{Store: f.memory, wait: make(chan struct{})}
		logged := make(chan struct{})
		var took time.Duration
		l := f.run(engine, worker.Config{}, func(w *worker.Worker) {
			worker.HandleRaw(w, queue, func(_ context.Context, d posthaste.RawDelivery) error {
				engine.delivery = d.ID
				d.Logger().Info("waits")
				<-time.After(time.Second) // it is being stored
				close(logged)
				<-engine.wait
				return nil
			})
			worker.HandleRaw(w, "other", func(ctx context.Context, d posthaste.RawDelivery) error {
				<-logged
				began := time.Now()
				defer func() { took = time.Since(began) }()
				ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
				defer cancel()
				return d.Checkpoint(ctx, 1)
			})
		})
		other := f.send("other", 1)[0]
		f.untilState(posthaste.StateDone, other)
		close(engine.wait)
		f.untilState(posthaste.StateDone, id)
		l.stop()
		if took > 0 {
			f.Errorf("a checkpoint in the other queue took %s", took)
		}
	})
}

// A handler that returns when its worker stops gets its outcome recorded, also if storing its last log
// lines takes long.
func TestSlowLogWhileStopping(t *testing.T) {
	inBubble(t, quick(), func(f *fixture) {
		f.slowNotes()
		id := f.send(queue, 1)[0]
		running := make(chan struct{})
		l := f.run(f.faults, worker.Config{Grace: time.Second}, func(w *worker.Worker) {
			worker.HandleRaw(w, queue, func(ctx context.Context, d posthaste.RawDelivery) error {
				close(running)
				<-ctx.Done()
				d.Logger().Info("stopped")
				return nil
			})
		})
		<-running
		l.stop()
		if s := f.state(id); s.State != posthaste.StateDone {
			f.Errorf("the message is %+v", s)
		}
		f.after(10 * time.Second) // the last calls end
	})
}
