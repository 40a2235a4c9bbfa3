package nats

import (
	"context"
	"sync/atomic"
	"time"
)

// clock is the time of the servers, as far as one of them has told: this process's clock and the
// difference that was measured last.
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
	// Half the time is the best guess for when it was stamped. A difference within that time
	// is no better known than zero.
	offset := entry.Created().Sub(before.Add(took / 2))
	if offset.Abs() <= took {
		offset = 0
	}
	e.clock.offset.Store(int64(offset))
	return nil
}
