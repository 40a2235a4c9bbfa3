package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// TestEventsAreStreamed: a stream has the events of its filter, a slow reader loses events and does
// not delay the worker, and streams end with Run.
func TestEventsAreStreamed(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		var notable, few, closed *worker.EventStream
		l := f.run(f.memory, worker.Config{}, func(w *worker.Worker) {
			worker.Handle(w, queue, func(_ context.Context, d posthaste.Delivery[int]) error {
				switch {
				case d.Payload%3 == 0:
					return posthaste.Permanent(errors.New("no"))
				case d.Payload%3 == 1:
					return posthaste.Snooze(time.Hour)
				}
				return nil
			})
			notable = w.Events(worker.EventFilter{Kinds: []posthaste.EventKind{posthaste.EventSettled}, Outcomes: []posthaste.Outcome{posthaste.OutcomeDead, posthaste.OutcomeReleased}})
			few = w.Events(worker.EventFilter{Kinds: []posthaste.EventKind{posthaste.EventSettled}, Outcomes: []posthaste.Outcome{posthaste.OutcomeDead}, Buffer: 4})
			closed = w.Events(worker.EventFilter{})
			closed.Close()
		})
		ids := f.send(queue, 30)
		synctest.Wait()
		time.Sleep(time.Second)
		l.stop()
		var got, want []string
		for e := range notable.C() {
			got = append(got, fmt.Sprint(e.Kind, e.Message, e.Outcome))
		}
		for i, id := range ids {
			switch i % 3 {
			case 0:
				want = append(want, fmt.Sprint(posthaste.EventSettled, id, posthaste.OutcomeDead))
			case 1:
				want = append(want, fmt.Sprint(posthaste.EventSettled, id, posthaste.OutcomeReleased))
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) || notable.Dropped() != 0 {
			f.Errorf("the stream has %q, want %q, and %d dropped", got, want, notable.Dropped())
		}
		kept := 0
		for range few.C() {
			kept++
		}
		if kept != 4 || few.Dropped() != 6 {
			f.Errorf("of 10 events without a reader %d were kept and %d dropped, want 4 and 6", kept, few.Dropped())
		}
		if _, open := <-closed.C(); open || closed.Dropped() != 0 {
			f.Error("a stream that was closed got an event")
		}
		if f.seen.events == nil {
			f.Error("the telemetry of the configuration got no events")
		}
	})
}

// TestStreamsEndWithARunThatFails: a reader does not wait for a worker that cannot run.
func TestStreamsEndWithARunThatFails(t *testing.T) {
	t.Parallel()
	w := worker.New(nil, worker.Config{})
	s := w.Events(worker.EventFilter{})
	if err := w.Run(t.Context()); err == nil {
		t.Fatal("a worker without handlers ran")
	}
	if _, open := <-s.C(); open {
		t.Error("the stream is open")
	}
}
