package worker_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// A worker registers the destinations of its sinks, and not its handlers.
func TestDestinationsAreRegistered(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		f.must(f.memory.CreateQueue(f.ctx, "handled", posthaste.QueueOptions{}))
		f.must(f.memory.CreateQueue(f.ctx, "kinds", posthaste.QueueOptions{}))
		sink := saying(func(*posthaste.RawDelivery) posthaste.SinkResult { return posthaste.SinkResult{} })
		f.run(f.memory, worker.Config{Name: "relay"}, func(w *worker.Worker) {
			worker.HandleSink(w, queue, sink, worker.WithDestination("Kafka at broker:9092"))
			worker.HandleSink(w, "kinds", sink, worker.WithKind("a"))
			worker.Handle(w, "handled", func(context.Context, posthaste.Delivery[any]) error { return nil })
		})
		workers, err := f.memory.Workers(f.ctx)
		f.must(err)
		want := []posthaste.WorkerSink{{Queue: queue, Subscription: posthaste.DefaultSubscription, Destination: "Kafka at broker:9092"}, {Queue: "kinds", Subscription: posthaste.DefaultSubscription}}
		if len(workers) != 1 || !slices.Equal(workers[0].Sinks, want) {
			t.Errorf("registered as %+v, want the sinks %+v", workers, want)
		}
	})
}

func TestDestinationsAreChecked(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		sink := saying(func(*posthaste.RawDelivery) posthaste.SinkResult { return posthaste.SinkResult{} })
		long := worker.New(f.memory, worker.Config{})
		worker.HandleSink(long, queue, sink, worker.WithDestination(strings.Repeat("x", 256)))
		handler := worker.New(f.memory, worker.Config{})
		worker.Handle(handler, queue, func(context.Context, posthaste.Delivery[any]) error { return nil }, worker.WithDestination("x"))
		for says, w := range map[string]*worker.Worker{"has 256 bytes": long, "has no sink": handler} {
			if err := w.Run(f.ctx); posthaste.CodeOf(err) != posthaste.CodeInvalid || !strings.Contains(err.Error(), says) {
				t.Errorf("%v, want one that says %q", err, says)
			}
		}
	})
}
