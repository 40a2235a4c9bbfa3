// Package nats is the engine on NATS JetStream (nats-server 2.14.10, 2.15.1 or newer), for more than
// one machine. Each queue is one stream. docs/production/nats-engine.md describes how it works, and in
// which points it differs from the other engines.
//
// A message that was answered as sent is on the disks of a majority of the stream's servers,
// as far as their settings sync them. A lease is kept by the clock of the process that holds
// the delivery.
//
// # Where things are
//
// A message is sent by send.go, which checks it and makes its entries and records, and publish.go,
// which stores them; message.go and message_text.go have its stored form. It is stored in a stream
// with the subjects of streams.go and the consumers of lanes.go, which create.go, subscribe.go and
// drop.go make and remove. It is claimed by pulls of taps.go, sorted by arrive.go when it comes and
// handed out by claim.go; hold.go has the deliveries of this process, lease.go their leases, and
// doorbell.go the sleepers. It is settled by settle.go: acks.go acknowledges a success, and follow.go
// stores a retry, a copy or a dead letter first. Outcomes are in outcome.go, notes in note.go, the
// exceptions of ordered queues in ordered.go, and deliveries of other processes in forward.go. Once it
// is dead, dead.go lists it, and replay.go replays or discards it. Operators look up messages by find.go
// and list.go, cancel and reschedule them by withdraw.go and withhold.go, and pause queues and schedules
// by pauses.go. Schedules are in schedule.go, schedules.go and ticks.go, and workers in workers.go, all
// cached by entrycache.go; queues.go caches the queues. open.go and background.go start the engine, and
// cutoff.go, denied.go and errors.go handle failures of the servers. streamapi.go has the calls of the
// JetStream API that its Go package lacks.
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
// Each of its parts has a lock of its own. Only preparing and ids.mu are held during a call to the server.
type Engine struct {
	settings
	conn     *natsgo.Conn
	js       jetstream.JetStream
	prepared atomic.Bool // prepareStore has succeeded
	clock    clock
	ids      ids
	life     sync.Mutex
	closed   bool           // Close was called
	ended    chan struct{}  // closed then
	work     sync.WaitGroup // the goroutines of this engine

	subscriptions []*natsgo.Subscription // made by startLoops

	preparing sync.Mutex
	kv        jetstream.KeyValue
	queues    queues
	holding   holding
	peers     peers
	taps      taps
	acks      acks
	bells     bells
	turns     atomic.Int64 // claims of queues that are not ordered: see laneOrder
	doubts    doubts
	orphansAt atomic.Int64 // when dropOrphanConsumers began last, by uptime
	rescued   atomic.Int64 // lost deliveries that this process has continued since the last call of rescue
	workers   workers
	tokens    entryCache[storedToken]
	schedules schedules
}

// closeTimeout bounds what Close does at the servers.
const closeTimeout = 2 * time.Second

// Close implements [posthaste.Engine]. Deliveries that are still held are redelivered when AckWait has
// passed; a worker gives its own back before, by Unregister.
func (e *Engine) Close() {
	e.life.Lock()
	over := e.closed
	e.closed = true
	e.life.Unlock()
	if over {
		return
	}
	if e.prepared.Load() {
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

// runInBackground runs f in a goroutine of the engine. The ctx of f ends when the engine is closed, and a
// closed engine runs nothing.
func (e *Engine) runInBackground(f func(ctx context.Context)) {
	e.life.Lock()
	defer e.life.Unlock()
	if e.closed {
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
