package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// Messages that are handed out at most once are not settled, retried or released. Telemetry
// reports how they ended.
func TestAtMostOnceIsNotSettled(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		f.create("once", posthaste.QueueOptions{Mode: posthaste.AtMostOnce})
		engine := &faults{Store: f.memory}
		engine.set(func(call string) error {
			if call == "settle" {
				f.Error("something was settled")
			}
			return nil
		}, nil)
		ids := f.send("once", 60)
		l := f.run(engine, worker.Config{}, func(w *worker.Worker) {
			worker.HandleRaw(w, "once", func(ctx context.Context, d posthaste.RawDelivery) error {
				_ = f.seen.handle(ctx, d)
				switch int64(d.MessageID) % 4 {
				case 0:
					return errors.New("it did not work")
				case 1:
					return posthaste.Snooze(time.Hour)
				case 2:
					panic("it did not work at all")
				}
				return nil
			})
		})
		f.now("all are handled", func() bool {
			return f.seen.told(posthaste.EventSettled, posthaste.OutcomeDone) == 15 && f.seen.told(posthaste.EventSettled, posthaste.OutcomeFailed) == 45
		})
		l.stop()
		f.eachOnce(ids)
		f.nowState(posthaste.StateHandedOut, ids...)
	})
}

// A worker that stops runs its prefetched at-most-once messages, because no other worker will.
// Those that do not start within the grace time are lost, and telemetry reports them.
func TestAtMostOnceAtTheEnd(t *testing.T) {
	for name, stuck := range map[string]bool{"in time": false, "not in time": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
				f.create("once", posthaste.QueueOptions{Mode: posthaste.AtMostOnce})
				ids := f.send("once", 10)
				entered, leave := make(chan struct{}, 10), make(chan struct{})
				config := worker.Config{}
				if stuck {
					config.Grace = time.Millisecond
				}
				l := f.run(f.memory, config, func(w *worker.Worker) {
					worker.HandleRaw(w, "once", func(ctx context.Context, d posthaste.RawDelivery) error {
						entered <- struct{}{}
						if stuck {
							<-ctx.Done()
							return ctx.Err()
						}
						<-leave
						return f.seen.handle(ctx, d)
					}, worker.WithConcurrency(1))
				})
				<-entered
				f.nowState(posthaste.StateHandedOut, ids...)
				l.cancel()
				if !stuck {
					f.after(20 * time.Millisecond)
					if !l.runs() {
						f.Error("the worker ended before its handler")
					}
					close(leave)
					l.stop()
					f.eachOnce(ids)
					return
				}
				l.stop()
				if t := f.elapsed(); t != config.Grace {
					f.Errorf("it stopped after %s, want the grace time", t)
				}
				lost, failed := f.seen.told(posthaste.EventSettled, posthaste.OutcomeLost), f.seen.told(posthaste.EventSettled, posthaste.OutcomeFailed)
				if lost != 9 || failed != 1 {
					f.Errorf("told of %d lost and %d failed messages, want 9 and the one that ran", lost, failed)
				}
			})
		})
	}
}

// A worker that is declared lost still runs its prefetched at-most-once messages.
func TestAtMostOnceOfALostWorker(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		f.create("once", posthaste.QueueOptions{Mode: posthaste.AtMostOnce})
		ids := f.send("once", 10)
		entered, leave := make(chan struct{}, 10), make(chan struct{})
		f.run(f.memory, worker.Config{}, func(w *worker.Worker) {
			worker.HandleRaw(w, "once", func(ctx context.Context, d posthaste.RawDelivery) error {
				entered <- struct{}{}
				<-leave
				return f.seen.handle(ctx, d)
			}, worker.WithConcurrency(1))
		})
		<-entered
		f.nowState(posthaste.StateHandedOut, ids...)
		workers, err := f.memory.Workers(f.ctx)
		f.must(err)
		f.must(f.memory.Unregister(f.ctx, workers[0].ID))
		f.after(3 * time.Second) // until its next heartbeat
		f.now("the worker knows that it is lost", func() bool { return f.seen.told(posthaste.EventLost, "") > 0 })
		close(leave)
		f.now("all are handled", func() bool { return f.seen.count() == len(ids) })
		f.eachOnce(ids)
	})
}

// A handler that settles for itself has nothing to settle there.
func TestAtMostOnceRefusesHandlersThatSettle(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{Mode: posthaste.AtMostOnce}, func(f *fixture) {
		w := worker.New(f.memory, worker.Config{})
		worker.HandleRaw(w, queue, f.seen.handle, worker.WithOwnTransaction())
		if err := w.Run(f.ctx); posthaste.CodeOf(err) != posthaste.CodeInvalid || !strings.Contains(err.Error(), "with the option WithOwnTransaction") {
			f.Errorf("it ran, and ended with %v", err)
		}
	})
}
