package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// cancel cancels messages that run.
func (f *fixture) cancel(ids ...posthaste.MessageID) {
	f.Helper()
	for _, id := range ids {
		got, err := f.memory.Cancel(f.ctx, id)
		f.must(err)
		if !got[0].Requested {
			f.Fatalf("cancelling message %d answered %+v, want it to run", id, got)
		}
	}
}

// The context of a handler whose message is cancelled ends at the next heartbeat, with that cause.
// What the handler returns then decides: nil means done, an error cancelled.
func TestR10_HandlerIsTold(t *testing.T) {
	for want, answer := range map[posthaste.State]func(error) error{
		posthaste.StateDone:      func(error) error { return nil },
		posthaste.StateCancelled: func(err error) error { return fmt.Errorf("stopping: %w", err) },
	} {
		t.Run(string(want), func(t *testing.T) {
			inBubble(t, quick(), func(f *fixture) {
				var runs atomic.Int32
				causes := make(chan error, 10)
				ids := f.send(queue, 2)
				f.run(f.memory, worker.Config{Heartbeat: time.Second}, func(w *worker.Worker) {
					worker.Handle(w, queue, func(ctx context.Context, d posthaste.Delivery[int]) error {
						runs.Add(1)
						if d.Payload == 1 {
							select {
							case <-ctx.Done():
								t.Error("the context of the other message ended")
							case <-time.After(5 * time.Second):
							}
							return nil
						}
						child := context.WithValue(ctx, t, 1)
						<-child.Done()
						causes <- context.Cause(child)
						if !d.Cancelled() {
							t.Error("the delivery is not said to be cancelled")
						}
						return answer(ctx.Err())
					}, worker.WithConcurrency(2))
				})
				f.now("both run", func() bool { return runs.Load() == 2 })
				f.cancel(ids[0])
				f.after(time.Second)
				f.now("the handler was told", func() bool { return len(causes) == 1 })
				if err := <-causes; !errors.Is(err, posthaste.ErrCancelled) {
					f.Errorf("the context ended because of %v", err)
				}
				f.untilState(want, ids[0])
				f.untilState(posthaste.StateDone, ids[1])
				f.after(time.Minute)
				if n := runs.Load(); n != 2 {
					f.Errorf("two messages ran %d times", n)
				}
			})
		})
	}
}

// A handler that asks for the error of its context sees the cancel, too.
func TestR10_HandlerThatAsks(t *testing.T) {
	inBubble(t, quick(), func(f *fixture) {
		id := f.send(queue, 1)[0]
		goOn, errs := make(chan struct{}), make(chan error, 2)
		f.run(f.memory, worker.Config{Heartbeat: time.Second}, func(w *worker.Worker) {
			worker.Handle(w, queue, func(ctx context.Context, d posthaste.Delivery[int]) error {
				errs <- ctx.Err()
				<-goOn
				errs <- ctx.Err()
				return context.Cause(ctx)
			})
		})
		f.now("it runs", func() bool { return len(errs) == 1 })
		f.cancel(id)
		f.after(time.Second)
		close(goOn)
		f.untilState(posthaste.StateCancelled, id)
		if before, after := <-errs, <-errs; before != nil || !errors.Is(after, context.Canceled) {
			f.Errorf("before the cancel the context's error was %v, and after it %v", before, after)
		}
		if a := f.state(id).Attempts; len(a) != 1 || a[0].Error != posthaste.ErrCancelled.Error() {
			f.Errorf("attempts %+v", a)
		}
	})
}

// A checkpoint is recorded, and its answer tells the handler before the next heartbeat.
func TestR10_CheckpointTells(t *testing.T) {
	inBubble(t, quick(), func(f *fixture) {
		id := f.send(queue, 1)[0]
		started, goOn, cause := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		f.run(f.memory, worker.Config{Heartbeat: 3 * time.Minute, Lease: 10 * time.Minute}, func(w *worker.Worker) {
			worker.Handle(w, queue, func(ctx context.Context, d posthaste.Delivery[int]) error {
				close(started)
				<-goOn
				if err := d.Checkpoint(ctx, 7); err != nil {
					t.Errorf("the checkpoint ended with %v", err)
				}
				cause <- context.Cause(ctx)
				return ctx.Err()
			})
		})
		<-started
		f.cancel(id)
		close(goOn)
		f.now("the handler was told", func() bool { return len(cause) == 1 })
		if err := <-cause; !errors.Is(err, posthaste.ErrCancelled) {
			f.Errorf("the context ended because of %v", err)
		}
		f.nowState(posthaste.StateCancelled, id)
		if a := f.state(id).Attempts; len(a) != 1 || string(a[0].Checkpoint) != "7" {
			f.Errorf("attempts %+v", a)
		}
	})
}

// A message that is cancelled while it waits in the worker does not start.
func TestR10_PrefetchedMessageDoesNotStart(t *testing.T) {
	inBubble(t, quick(), func(f *fixture) {
		ran := make(chan int, 10)
		ids := f.send(queue, 3)
		f.run(f.memory, worker.Config{Heartbeat: time.Second}, func(w *worker.Worker) {
			worker.Handle(w, queue, func(ctx context.Context, d posthaste.Delivery[int]) error {
				ran <- d.Payload
				time.Sleep(5 * time.Second)
				return nil
			}, worker.WithConcurrency(1))
		})
		f.nowState(posthaste.StateRunning, ids...)
		f.cancel(ids[1])
		f.untilState(posthaste.StateDone, ids[0], ids[2])
		f.nowState(posthaste.StateCancelled, ids[1])
		close(ran)
		var got []int
		for n := range ran {
			got = append(got, n)
		}
		if !slices.Equal(got, []int{0, 2}) {
			f.Errorf("%v ran, want 0 and 2", got)
		}
	})
}

// The context of a batch ends once all of its messages are cancelled. Until then the handler can
// ask for each.
func TestR10_Batch(t *testing.T) {
	inBubble(t, quick(), func(f *fixture) {
		ids := f.send(queue, 3)
		started, asked := make(chan struct{}), make(chan []bool, 1)
		goOn, cause := make(chan struct{}), make(chan error, 1)
		f.run(f.memory, worker.Config{Heartbeat: time.Second}, func(w *worker.Worker) {
			worker.HandleBatch(w, queue, func(ctx context.Context, batch []posthaste.Delivery[int]) []error {
				close(started)
				<-goOn
				if ctx.Err() != nil {
					t.Error("the context ended while one message was not cancelled")
				}
				var all []bool
				for _, d := range batch {
					all = append(all, d.Cancelled())
				}
				asked <- all
				<-ctx.Done()
				cause <- context.Cause(ctx)
				return []error{ctx.Err(), nil, ctx.Err()}
			}, worker.WithConcurrency(1))
		})
		<-started
		f.cancel(ids[0], ids[1])
		f.after(time.Second)
		close(goOn)
		if got := <-asked; !slices.Equal(got, []bool{true, true, false}) {
			f.Errorf("the messages are said to be cancelled: %v", got)
		}
		f.cancel(ids[2])
		if err := <-cause; !errors.Is(err, posthaste.ErrCancelled) {
			f.Errorf("the context ended because of %v", err)
		}
		f.nowState(posthaste.StateCancelled, ids[0], ids[2])
		f.nowState(posthaste.StateDone, ids[1])
	})
}

// A worker that stops while a cancelled message runs does not hand it back.
func TestR10_StopReleasesNothingCancelled(t *testing.T) {
	inBubble(t, quick(), func(f *fixture) {
		id := f.send(queue, 1)[0]
		started := make(chan struct{})
		l := f.run(f.memory, worker.Config{Heartbeat: 3 * time.Minute, Lease: 10 * time.Minute, Grace: time.Second}, func(w *worker.Worker) {
			worker.Handle(w, queue, func(ctx context.Context, d posthaste.Delivery[int]) error {
				close(started)
				<-ctx.Done()
				return ctx.Err()
			})
		})
		<-started
		f.cancel(id)
		l.stop()
		f.nowState(posthaste.StateCancelled, id)
	})
}

// A heartbeat whose answer is lost tells with the next one.
func TestR10_LostAnswer(t *testing.T) {
	inBubble(t, quick(), func(f *fixture) {
		id := f.send(queue, 1)[0]
		started := make(chan struct{})
		f.run(f.faults, worker.Config{Heartbeat: time.Second}, func(w *worker.Worker) {
			worker.Handle(w, queue, func(ctx context.Context, d posthaste.Delivery[int]) error {
				close(started)
				<-ctx.Done()
				return context.Cause(ctx)
			})
		})
		<-started
		f.cancel(id)
		var lost atomic.Int32
		f.faults.set(nil, func(call string) error {
			if call == "heartbeat" && lost.Add(1) <= 2 {
				return errAway
			}
			return nil
		})
		f.untilState(posthaste.StateCancelled, id)
		if lost.Load() < 3 {
			f.Errorf("%d heartbeats were sent", lost.Load())
		}
	})
}

// The attempt of a handler that returns the error of its context tells that the message was
// cancelled.
func TestCancelIsTheError(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		for what, wrap := range map[string]func(error) error{
			"the message was cancelled while it ran":                         func(err error) error { return err },
			"the message was cancelled while it ran: copy: context canceled": func(err error) error { return fmt.Errorf("copy: %w", err) },
		} {
			id := f.send(queue, 1)[0]
			begun := make(chan struct{})
			l := f.run(f.memory, worker.Config{}, func(w *worker.Worker) {
				worker.HandleRaw(w, queue, func(ctx context.Context, _ posthaste.RawDelivery) error {
					close(begun)
					<-ctx.Done()
					return wrap(ctx.Err())
				})
			})
			<-begun
			f.cancel(id)
			var last posthaste.Attempt
			f.until("it is cancelled", func() bool {
				m, err := f.memory.Message(f.ctx, id)
				f.must(err)
				last = m.Subscriptions[0].Attempts[0]
				return m.Subscriptions[0].State == posthaste.StateCancelled
			})
			if last.Error != what {
				f.Errorf("the attempt has the error %q, want %q", last.Error, what)
			}
			l.stop()
		}
	})
}
