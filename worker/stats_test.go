package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// reports is an engine that keeps the reports of workers.
type reports struct {
	posthaste.Store
	mu    sync.Mutex
	all   [][]posthaste.HandlerStats
	fails error
}

func (r *reports) Report(_ context.Context, worker posthaste.WorkerID, stats []posthaste.HandlerStats) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if worker == 0 {
		return errors.New("no worker")
	}
	r.all = append(r.all, stats)
	return r.fails
}

func (r *reports) of(n int, kind string) (found posthaste.HandlerStats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.all[n] {
		if s.Kind == kind {
			return s
		}
	}
	return found
}

func (r *reports) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

// counted returns the sums that telemetry was told of a kind, if they agree with the histograms.
func (f *fixture) counted(kind string) (waited, ran time.Duration) {
	f.seen.mu.Lock()
	defer f.seen.mu.Unlock()
	for _, e := range f.seen.events {
		if e.Kind == posthaste.EventCounted && e.Stats.Kind == kind && e.Queue == queue && e.Subscription == posthaste.DefaultSubscription &&
			int64(e.Count) == e.Stats.Wait.Count() && int64(e.Count) == e.Stats.Run.Count() {
			waited, ran = waited+e.WaitSum, ran+e.RunSum
		}
	}
	return waited, ran
}

// Outcomes, waits, durations and errors of each kind are reported, every 15 s and at the end, and
// nothing is reported while nothing is handled.
func TestWorkersReportTheirCounts(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{MaxAttempts: 2, BackoffBase: time.Second}, func(f *fixture) {
		r := &reports{Store: f.memory}
		sent := f.put(posthaste.Message{Payload: 1, Kind: "good"}, posthaste.Message{Payload: 2, Kind: "bad"}, posthaste.Message{Payload: 3, Kind: "snoozed"})
		time.Sleep(3 * time.Second)
		l := f.run(r, worker.Config{}, func(w *worker.Worker) {
			worker.Handle(w, queue, func(_ context.Context, d posthaste.Delivery[int]) error {
				time.Sleep(100 * time.Millisecond)
				switch d.Kind {
				case "bad":
					return fmt.Errorf("order %d is unknown", d.Payload)
				case "snoozed":
					return posthaste.Snooze(time.Hour)
				}
				return nil
			})
		})
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n := r.count(); n != 1 {
			t.Fatalf("after 20 s there are %d reports", n)
		}
		good, bad := r.of(0, "good"), r.of(0, "bad")
		if good.Done != 1 || good.Queue != queue || good.Subscription != posthaste.DefaultSubscription || good.Wait.Quantile(1) < 2*time.Second || good.Wait.Quantile(1) > 5*time.Second ||
			good.Run.Count() != 1 || good.Run.Quantile(1) < 64*time.Millisecond || good.Run.Quantile(1) > 128*time.Millisecond || good.Errors != nil {
			t.Errorf("good: %+v", good)
		}
		if bad.Retried != 1 || bad.Failed != 1 || bad.Done != 0 || bad.Run.Count() != 2 || len(bad.Errors) != 1 {
			t.Fatalf("bad: %+v", bad)
		}
		if e := bad.Errors[0]; e.Fingerprint != "order … is unknown" || e.Error != "order 2 is unknown" || e.Message != sent[1] || e.Count != 2 {
			t.Errorf("the error: %+v", e)
		}
		if waited, ran := f.counted("bad"); waited < 3*time.Second || waited > 10*time.Second || ran != 200*time.Millisecond {
			t.Errorf("telemetry is told that attempts waited for %s and ran for %s", waited, ran)
		}
		if s := r.of(0, "snoozed"); s.Run.Count() != 0 {
			t.Errorf("a snoozed message counts as an attempt: %+v", s)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := r.count(); n != 1 {
			t.Errorf("without messages there are %d reports", n)
		}
		f.put(posthaste.Message{Payload: 4, Kind: "good"})
		time.Sleep(time.Second)
		l.stop()
		if r.count() != 2 || r.of(1, "good").Done != 1 {
			t.Errorf("the counts before the end are not reported: %+v", r.all)
		}
	})
}

// A report that fails is dropped, and the next has only what came later.
func TestReportsAreNotRepeated(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		r := &reports{Store: f.memory, fails: &posthaste.Error{Code: posthaste.CodeOutcomeUnknown}}
		l := f.run(r, worker.Config{}, func(w *worker.Worker) {
			worker.Handle(w, queue, func(context.Context, posthaste.Delivery[int]) error { return nil })
		})
		for range 2 {
			f.put(posthaste.Message{Payload: 1, Kind: "k"})
			time.Sleep(posthaste.StatsInterval)
			synctest.Wait()
		}
		l.stop()
		if r.count() != 2 || r.of(0, "k").Done != 1 || r.of(1, "k").Done != 1 {
			t.Errorf("the reports are %+v", r.all)
		}
	})
}

// A process counts a limited number of kinds and of errors.
func TestManyKindsAndErrors(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{MaxAttempts: 1}, func(f *fixture) {
		r := &reports{Store: f.memory}
		l := f.run(r, worker.Config{}, func(w *worker.Worker) {
			worker.Handle(w, queue, func(_ context.Context, d posthaste.Delivery[int]) error {
				if d.Kind == "bad" {
					return errors.New("error " + string(rune('a'+d.Payload%26)) + string(rune('a'+d.Payload/26)))
				}
				return nil
			})
		})
		var messages []posthaste.Message
		for i := range 2 * posthaste.MaxStatsKinds {
			messages = append(messages, posthaste.Message{Payload: i, Kind: "bad"}, posthaste.Message{Payload: i, Kind: fmt.Sprint("kind ", i)})
		}
		f.put(messages...)
		time.Sleep(posthaste.StatsInterval + time.Second)
		synctest.Wait()
		l.stop()
		bad := r.of(0, "bad")
		if bad.Failed != 2*posthaste.MaxStatsKinds || len(bad.Errors) != posthaste.MaxReportErrors {
			t.Errorf("%d attempts failed, with errors %+v", bad.Failed, bad.Errors)
		}
		others := r.of(0, posthaste.OtherKinds)
		if len(r.all[0]) != posthaste.MaxStatsKinds+1 || others.Done != posthaste.MaxStatsKinds+1 {
			t.Errorf("%d kinds are reported, with %d of other kinds", len(r.all[0]), others.Done)
		}
	})
}
