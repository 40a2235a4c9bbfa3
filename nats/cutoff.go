package nats

import (
	"context"
	"sync/atomic"
	"time"
)

// A server that is cut off from the others keeps its clients, although it cannot serve them. So after a
// failed call, the engine checks whether its server still reaches the leader of the store, and otherwise
// connects to another one.

// doubtFor is how long the engine tries to reach the leader. Most elections take less.
const doubtFor = 5 * time.Second

// doubts says whether the connection is being checked.
type doubts struct{ asking atomic.Bool }

// leaveIfCutOff checks in the background whether the server of this connection reaches the leader of the
// store, and connects to another server if it does not.
func (e *Engine) leaveIfCutOff() {
	if !e.prepared.Load() || !e.conn.IsConnected() || !e.doubts.asking.CompareAndSwap(false, true) {
		return
	}
	e.runInBackground(func(ctx context.Context) {
		defer e.doubts.asking.Store(false)
		from := e.conn.ConnectedUrl()
		for begun := uptime(); uptime()-begun < doubtFor; {
			if err := e.reach(ctx); err == nil || isFull(err) {
				return
			}
			if !sleepFor(ctx, pauseBetween) {
				return
			}
		}
		if e.conn.IsConnected() && e.conn.ConnectedUrl() == from {
			_ = e.conn.ForceReconnect()
		}
	})
}

// reach writes to the store, which needs a majority: a leader that is cut off still answers reads.
func (e *Engine) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := e.kv.Put(ctx, "reached", nil)
	return err
}
