package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// A machine that was suspended wakes with a lease that is over, and no timer knows that. What
// was prefetched does not start, neither where the store has given it to others nor where
// it has not noticed: then it is handed back and comes again.
func TestSuspendedMachineStartsNothing(t *testing.T) {
	for name, noticed := range map[string]bool{"lost": true, "unnoticed": false} {
		for kind, batch := range map[string]bool{"one by one": false, "in batches": true} {
			t.Run(name+" "+kind, func(t *testing.T) {
				inBubble(t, posthaste.QueueOptions{MaxAttempts: 2}, func(f *fixture) { suspended(f, noticed, batch) })
			})
		}
	}
}

// A lost worker that compares its deliveries with the store before a heartbeat reports the
// loss has no error to report.
func TestLostWorkerComparesWithoutTrouble(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		var compared atomic.Int32
		var claims atomic.Int32
		f.faults.set(func(call string) error {
			switch {
			case call == "unsettled":
				compared.Add(1)
				return &posthaste.Error{Code: posthaste.CodeWorkerLost, Message: "lost"}
			case call == "claim" && claims.Add(1) == 2:
				return errAway // so that it compares
			}
			return nil
		}, nil)
		l := f.run(f.faults, worker.Config{}, func(w *worker.Worker) { worker.HandleRaw(w, queue, f.seen.handle) })
		f.untilState(posthaste.StateDone, f.send(queue, 10)...)
		f.until("it compares", func() bool { return compared.Load() > 0 })
		l.stop()
		if n := f.seen.told(posthaste.EventError, ""); n != 1 {
			f.Errorf("%d errors are told, want that of the claim", n)
		}
	})
}

func suspended(f *fixture, noticed, batch bool) {
	var asleep atomic.Int64 // for how long the machine was
	cut := f.faults.cutOff("heartbeat", "settle")
	const lease = 3 * time.Second
	ids := f.send(queue, 10)
	step := make(chan struct{})
	var started atomic.Int32
	handle := func(ctx context.Context, d posthaste.RawDelivery) error {
		started.Add(1)
		<-step
		return f.seen.handle(ctx, d)
	}
	l := f.run(f.faults, worker.Config{Lease: lease}, func(w *worker.Worker) {
		worker.SetWall(w, func(t time.Time) int64 { return t.UnixNano() + asleep.Load() })
		if !batch {
			worker.HandleRaw(w, queue, handle, worker.WithConcurrency(1))
			return
		}
		worker.HandleBatch(w, queue, func(ctx context.Context, batch []posthaste.Delivery[int]) []error {
			return []error{handle(ctx, batch[0].RawDelivery)}
		}, worker.WithConcurrency(1), worker.WithBatchSize(1))
	})
	f.now("one runs", func() bool { return started.Load() == 1 })
	step <- struct{}{}
	f.now("another one runs", func() bool { return started.Load() == 2 })
	cut.Store(true) // before the network is back
	asleep.Store(int64(lease))
	step <- struct{}{}
	f.now("nothing starts", func() bool { return started.Load() == 2 })
	if f.seen.logged("lease") == "" {
		f.Error("the end of the lease is not logged")
	}
	if noticed {
		workers, err := f.memory.Workers(f.ctx)
		f.must(err)
		f.must(f.memory.Unregister(f.ctx, workers[0].ID))
		_, err = f.memory.Maintain(f.ctx, posthaste.UpkeepRescue)
		f.must(err)
	}
	cut.Store(false)
	close(step)
	f.untilState(posthaste.StateDone, ids...)
	l.stop()
	if noticed { // the second was handled when it was redelivered
		ids = append(ids[:1:1], ids[2:]...)
	}
	f.eachOnce(ids)
	if n := f.seen.told(posthaste.EventDuplicate, ""); !noticed && n > 0 {
		f.Errorf("%d messages were told as perhaps handled twice", n)
	}
}
