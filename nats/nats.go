// Package nats is the engine on NATS JetStream (nats-server 2.14 or newer), for more than one
// machine. Each queue is one stream. docs/production/nats-engine.md describes how it works, and in which
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

	"github.com/posthaste-mq/posthaste"
)

var _ posthaste.Store = (*Engine)(nil)

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
	life  sync.Mutex
	over  bool           // Close was called
	ended chan struct{}  // closed then
	work  sync.WaitGroup // the goroutines of this engine

	subscriptions []*natsgo.Subscription // made by begin

	beginning sync.Mutex
	kv        jetstream.KeyValue
	queues    queues
	holding   holding
	peers     peers
	taps      taps
	acks      acks
	bells     bells
	turns     atomic.Int64 // claims of queues with several consumers
	doubts    doubts
	leftAt    atomic.Int64 // when dropLeft began last, by uptime
	rescued   atomic.Int64 // lost deliveries that were continued, since rescue was called
	workers   workers
	tokens    shelf[storedToken]
	schedules schedules
}

// closeTimeout bounds what Close does at the servers.
const closeTimeout = 2 * time.Second

// Close implements [posthaste.Engine]. A delivery that is held comes again when AckWait has passed; a
// worker gives it back before, by Unregister.
func (e *Engine) Close() {
	e.life.Lock()
	over := e.over
	e.over = true
	e.life.Unlock()
	if over {
		return
	}
	if e.begun.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		e.taps.shut()
		e.emptyHands(ctx, true)
		cancel()
	}
	close(e.ended)
	for _, s := range e.subscriptions {
		_ = s.Unsubscribe() // the connection may be closed
	}
	e.work.Wait()
	if e.owned {
		e.conn.Close()
	}
}

// goes runs f, whose ctx ends when the engine is closed. After that it runs nothing.
func (e *Engine) goes(f func(ctx context.Context)) {
	e.life.Lock()
	defer e.life.Unlock()
	if e.over {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	e.work.Go(func() {
		defer cancel()
		f(ctx)
	})
	e.work.Go(func() {
		select {
		case <-e.ended:
			cancel()
		case <-ctx.Done():
		}
	})
}

// subscribe listens on a subject until the engine is closed.
func (e *Engine) subscribe(subject string, f natsgo.MsgHandler) error {
	s, err := e.conn.Subscribe(subject, f)
	if err != nil {
		return err
	}
	e.subscriptions = append(e.subscriptions, s)
	return s.SetPendingLimits(-1, -1)
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
