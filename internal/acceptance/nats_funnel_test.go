//go:build unix

package acceptance

import (
	"context"

	"github.com/posthaste-mq/posthaste/sink/funnel"
	"github.com/posthaste-mq/posthaste/worker"
)

// funnelRole relays a queue into the engine at t.Target, as the origin t.Broker, until it is told to
// stop.
func funnelRole(ctx context.Context, t task, ready func()) error {
	engine, err := openStore(ctx, t.URL)
	if err != nil {
		return err
	}
	defer engine.Close()
	target, err := openStore(ctx, t.Target)
	if err != nil {
		return err
	}
	sink, err := funnel.New(funnel.Config{Target: target, Origin: t.Broker})
	if err != nil {
		return err
	}
	defer sink.Close()
	w := worker.New(engine, worker.Config{Name: t.Name, Lease: t.Lease})
	worker.HandleSink(w, t.Queue, sink, worker.WithBatchSize(t.Count), worker.WithConcurrency(t.Concurrency))
	go func() {
		<-w.Started()
		ready()
	}()
	return w.Run(ctx)
}
