package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// Heartbeats tell which handlers run, those that have run longest first.
func TestHeartbeatsTellWhatRuns(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{Timeout: time.Hour}, func(f *fixture) {
		f.create("other", posthaste.QueueOptions{Timeout: time.Hour})
		l := f.run(f.memory, worker.Config{Concurrency: 3}, func(w *worker.Worker) {
			slow := func(ctx context.Context, _ posthaste.Delivery[int]) error {
				<-ctx.Done()
				return ctx.Err()
			}
			worker.Handle(w, queue, slow)
			worker.Handle(w, "other", slow, worker.WithConcurrency(1))
		})
		first := f.put(posthaste.Message{Payload: 1, Kind: "k"})
		time.Sleep(time.Minute)
		f.send("other", 2)
		time.Sleep(time.Minute)
		synctest.Wait()
		workers, err := f.memory.Workers(f.ctx)
		f.must(err)
		state := workers[0].State
		if len(state.Running) != 2 || state.Running[0].Message != first[0] || state.Running[0].Kind != "k" || state.Running[0].Attempt != 1 ||
			state.Running[0].Ran < time.Minute || state.Running[0].Ran > 2*time.Minute || state.Running[1].Queue != "other" || state.Running[1].Ran > time.Minute {
			t.Errorf("running: %+v", state.Running)
		}
		if state.Concurrency != 3 {
			t.Errorf("the worker runs %d handlers at most, want 3", state.Concurrency)
		}
		for _, load := range state.Loads {
			want := posthaste.WorkerLoad{Queue: load.Queue, Subscription: posthaste.DefaultSubscription, Concurrency: 3, Running: 1}
			if load.Queue == "other" {
				want.Concurrency, want.Claimed = 1, load.Claimed // it may claim the next one early
			}
			if load != want {
				t.Errorf("the load is %+v, want %+v", load, want)
			}
		}
		l.stop()
	})
}
