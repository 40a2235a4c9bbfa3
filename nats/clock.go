package nats

import (
	"context"
	"sync/atomic"
	"time"
)

// clock tells the time of the servers: that of this process plus the difference from a server that was
// measured last.
type clock struct{ offset atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.offset.Load())).Round(0) }

// setClock measures the difference: a server stamps each entry of the store.
func (e *Engine) setClock(ctx context.Context) error {
	before := time.Now()
	if _, err := e.kv.Put(ctx, "clock", nil); err != nil {
		return e.readError(err)
	}
	entry, err := e.kv.Get(ctx, "clock")
	if err != nil {
		return e.readError(err)
	}
	took := time.Since(before)
	// The best guess is that the entry was stamped halfway. A difference smaller than the time that the
	// calls took may as well be zero.
	offset := entry.Created().Sub(before.Add(took / 2))
	if offset.Abs() <= took {
		offset = 0
	}
	e.clock.offset.Store(int64(offset))
	return nil
}
