// Package nats is the engine on NATS JetStream (nats-server 2.14.10, 2.15.1 or newer), for more than
// one machine. Each queue is one stream. docs/production/nats-engine.md explains the engine and its
// differences from the other engines.
//
// When Send returns, a majority of the stream's servers has stored the message. Whether it
// survives a power failure depends on their sync settings. A lease runs by the clock of the
// process that holds the delivery.
//
// # Files
//
//   - Sending: send.go checks a message and builds its entries and records. publish.go stores
//     them. message.go and message_text.go have the stored form.
//   - Streams: streams.go has the subjects and lanes.go the consumers. create.go, subscribe.go and
//     drop.go create and remove them. purge.go empties a queue.
//   - Claiming: buffers.go pulls messages, arrive.go sorts them on arrival, fired.go finds duplicates
//     among them, and claim.go hands them out. hold.go has the deliveries of this process, lease.go
//     their leases, and doorbell.go the sleeping workers.
//   - Settling: settle.go begins a settlement. acks.go acknowledges a success. follow.go first
//     stores a retry, a copy or a dead letter. outcome.go has outcomes, note.go notes, ordered.go
//     the exceptions of ordered queues, and forward.go the deliveries of other processes.
//   - Dead letters: dead.go lists them, and replay.go replays or discards them.
//   - Operators: find.go and list.go look up messages, withdraw.go and withhold.go cancel and
//     reschedule them, and pauses.go pauses queues and schedules.
//   - Schedules and workers: schedule.go, schedules.go, ticks.go and workers.go. entrycache.go
//     caches both, and queues.go the queues.
//   - Infrastructure: open.go and background.go start the engine. cutoff.go, denied.go and
//     errors.go handle failures of the servers. streamapi.go has calls of the JetStream API that
//     its Go package lacks.
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
	buffers   buffers
	fired     fired
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
		e.buffers.shut()
		e.emptyBuffers(ctx, true)
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
