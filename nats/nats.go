// Package nats is the engine on NATS JetStream (nats-server 2.14 or newer), for more than one
// machine. Each queue is one stream. docs/nats-engine.md describes how it works, and in which
// points it differs from the other engines.
//
// A message that was answered as sent is on the disks of a majority of the stream's servers,
// as far as their settings sync them. A lease is kept by the clock of the process that holds
// the delivery.
package nats

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Engine implements [posthaste.Store]. It is safe for concurrent use.
//
// Each of its parts has a lock of its own, and none is held during a call to the server.
type Engine struct {
	settings
	conn  *natsgo.Conn
	js    jetstream.JetStream
	begun atomic.Bool // begin has prepared the streams
	clock clock
	ids   ids
	ended chan struct{} // closed by Close
	close sync.Once
	work  sync.WaitGroup // the goroutines of this engine

	beginning sync.Mutex
	kv        jetstream.KeyValue
	queues    queues
	holding   holding
	taps      taps
	acks      acks
	workers   workers
}

// Close implements [posthaste.Engine].
func (e *Engine) Close() {
	e.close.Do(func() { close(e.ended) })
	if e.owned {
		e.conn.Close()
	}
	e.work.Wait()
}

// goes runs f until the engine is closed.
func (e *Engine) goes(f func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	e.work.Go(func() {
		<-e.ended
		cancel()
	})
	e.work.Go(func() { f(ctx) })
}

// every calls f at an interval until ctx ends.
func every(ctx context.Context, interval time.Duration, f func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f()
		}
	}
}
