package worker

import (
	"context"
	"sync"
	"time"
)

// alarm wakes one goroutine at a time that others tell, the last one counting.
type alarm struct {
	changed chan struct{}

	mu sync.Mutex
	at time.Time // zero if it will not ring
}

func newAlarm() *alarm { return &alarm{changed: make(chan struct{}, 1)} }

// set has the alarm ring at a time in place of any other; the zero time means never.
func (a *alarm) set(at time.Time) {
	a.mu.Lock()
	a.at = at
	a.mu.Unlock()
	token(a.changed)
}

// wait returns true when it rings, after which it will not again until it is set,
// and false if ctx ended.
func (a *alarm) wait(ctx context.Context) bool {
	for ctx.Err() == nil {
		a.mu.Lock()
		at, now := a.at, time.Now()
		if !at.IsZero() && !at.After(now) {
			a.at = time.Time{}
			a.mu.Unlock()
			return true
		}
		a.mu.Unlock()
		in := time.Hour // and then look again
		if !at.IsZero() {
			in = at.Sub(now)
		}
		timer := time.NewTimer(in)
		select {
		case <-timer.C:
		case <-a.changed:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return false
}
