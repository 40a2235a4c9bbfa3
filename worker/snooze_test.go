package worker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// Snoozed messages come again later, under the same attempt and without a
// failure, from handlers, batch handlers and sinks.
func TestSnooze(t *testing.T) {
	type handler = func(d posthaste.RawDelivery) error
	for name, register := range map[string]func(w *worker.Worker, h handler){
		"handler": func(w *worker.Worker, h handler) {
			worker.HandleRaw(w, queue, func(_ context.Context, d posthaste.RawDelivery) error { return h(d) })
		},
		"batch": func(w *worker.Worker, h handler) {
			worker.HandleBatch(w, queue, func(_ context.Context, batch []posthaste.Delivery[int]) (errs []error) {
				for _, d := range batch {
					errs = append(errs, h(d.RawDelivery))
				}
				return errs
			})
		},
		"sink": func(w *worker.Worker, h handler) { worker.HandleSink(w, queue, sinkOf(h)) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, posthaste.QueueOptions{MaxAttempts: 1}, func(f *fixture) {
				var mu sync.Mutex
				comes := map[posthaste.MessageID]int{}
				ids := f.send(queue, 3)
				l := f.run(f.memory, worker.Config{}, func(w *worker.Worker) {
					register(w, func(d posthaste.RawDelivery) error {
						mu.Lock()
						defer mu.Unlock()
						comes[d.MessageID]++
						if d.Attempt != 1 || len(d.Story) != 0 {
							f.Errorf("a snoozed message came as attempt %d with the story %+v", d.Attempt, d.Story)
						}
						switch d.MessageID {
						case ids[0]:
							return fmt.Errorf("not now: %w", posthaste.Snooze(time.Hour))
						case ids[1]:
							return posthaste.Permanent(posthaste.Snooze(time.Hour))
						}
						if comes[d.MessageID] < 5 {
							return posthaste.RetryAfter(posthaste.Snooze(-time.Second), time.Hour)
						}
						return nil
					})
				})
				f.nowState(posthaste.StateScheduled, ids[0])
				f.nowState(posthaste.StateDead, ids[1])
				f.nowState(posthaste.StateDone, ids[2])
				l.stop()
				if in := f.state(ids[0]).DueAt.Sub(f.began); in != time.Hour {
					f.Errorf("it comes again in %s, want an hour", in)
				}
				if comes[ids[2]] != 5 {
					f.Errorf("it came %d times, want 5", comes[ids[2]])
				}
				if n := f.seen.told(posthaste.EventSettled, posthaste.OutcomeRetried); n != 0 {
					f.Errorf("%d failures were told", n)
				}
			})
		})
	}
}

type sinkOf func(d posthaste.RawDelivery) error

func (s sinkOf) Deliver(_ context.Context, batch []posthaste.RawDelivery) []posthaste.SinkResult {
	results := make([]posthaste.SinkResult, len(batch))
	for i, d := range batch {
		results[i].Err = s(d)
	}
	return results
}

func (sinkOf) Close() error { return nil }
