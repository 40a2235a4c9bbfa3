package nats

import (
	"context"
	"sync/atomic"
	"time"
)

// A server that is cut off from the others keeps its clients, and can do nothing for them. So after a
// call that failed, the engine looks whether its server still reaches a leader, and otherwise goes
// to another one.

// doubtFor is how long the leader is looked for. An election takes less, mostly.
const doubtFor = 5 * time.Second

// doubts says that the connection is being looked at.
type doubts struct{ asking atomic.Bool }

// doubt looks whether the server that this process is connected to reaches the leader of the
// store, and connects to another server if it does not. It does not block.
func (e *Engine) doubt() {
	if !e.begun.Load() || !e.conn.IsConnected() || !e.doubts.asking.CompareAndSwap(false, true) {
		return
	}
	e.goes(func(ctx context.Context) {
		defer e.doubts.asking.Store(false)
		from := e.conn.ConnectedUrl()
		for begun := uptime(); uptime()-begun < doubtFor; {
			if err := e.reach(ctx); err == nil || isFull(err) {
				return
			}
			if !pausesFor(ctx, pauseBetween) {
				return
			}
		}
		if e.conn.IsConnected() && e.conn.ConnectedUrl() == from {
			_ = e.conn.ForceReconnect()
		}
	})
}

// reach lets the store take a write. A leader that is cut off answers reads.
func (e *Engine) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := e.kv.Put(ctx, "reached", nil)
	return err
}
