package nats

import (
	"context"
	"time"

	natsgo "github.com/nats-io/nats.go"
)

// startBackground starts the goroutines and subscriptions of the engine, and returns once this process
// knows all entries of the store. If it fails, it is called again.
func (e *Engine) startBackground(ctx context.Context) error {
	if e.holding.processNumber() == 0 {
		no, err := e.sequence(ctx)
		if err != nil {
			return err
		}
		if err := e.startLoops(no); err != nil {
			return e.readError(err)
		}
	}
	for _, keep := range []func(context.Context, bucket) error{e.tokens.startWatch, e.schedules.startWatch, e.workers.startWatch} {
		if err := keep(ctx, e.bucket()); err != nil {
			return err
		}
	}
	return e.watchQueues(ctx)
}

// startLoops starts all but the watches of the store. no is the number of this process. If it fails, it leaves
// nothing behind, and can be called again.
func (e *Engine) startLoops(no int64) error {
	e.buffers.arrived, e.buffers.ring, e.buffers.asleep = e.arrive, e.bells.ring, e.bells.asleep
	e.buffers.start(e.conn)
	e.holding.setProcess(no)
	if err := e.listen(); err != nil {
		e.holding.setProcess(0)
		for _, s := range e.subscriptions {
			_ = s.Unsubscribe() // the connection may be closed
		}
		e.subscriptions = nil
		return err
	}
	connected := e.conn.StatusChanged(natsgo.CONNECTED)
	e.runInBackground(func(ctx context.Context) {
		defer e.conn.RemoveStatusListener(connected)
		for {
			select {
			case <-ctx.Done():
				return
			case <-connected:
				e.buffers.reconnected()
			}
		}
	})
	e.runInBackground(func(ctx context.Context) { every(ctx, 100*time.Millisecond, e.acks.repeat) })
	e.runInBackground(func(ctx context.Context) { every(ctx, 250*time.Millisecond, e.buffers.sweep) })
	e.runInBackground(func(ctx context.Context) { every(ctx, 250*time.Millisecond, func() { e.emptyBuffers(ctx, false) }) })
	e.runInBackground(func(ctx context.Context) { every(ctx, time.Second/2, func() { e.keepLeases(ctx) }) })
	return nil
}

// listen makes the subscriptions of this process.
func (e *Engine) listen() error {
	if err := e.acks.start(e.conn, e.subscribe); err != nil {
		return err
	}
	for _, listen := range []func() error{e.listenForwarded, e.listenQueues, e.listenWithhold} {
		if err := listen(); err != nil {
			return err
		}
	}
	return nil
}

// bucket returns the store as the caches use it.
func (e *Engine) bucket() bucket {
	name := e.prefix + "-store"
	last := func(ctx context.Context, prefix string) (uint64, error) {
		m, err := e.lastOn(ctx, "KV_"+name, "$KV."+name+"."+prefix+">")
		if err != nil || m == nil {
			return 0, err
		}
		return m.Sequence, nil
	}
	return bucket{KeyValue: e.kv, last: last, runInBackground: e.runInBackground, readError: e.readError}
}
