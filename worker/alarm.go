package worker

import (
	"context"
	"sync"
	"time"
)

// alarm wakes one goroutine at a time that other goroutines set. The latest time set counts.
type alarm struct {
	changed chan struct{}

	mu sync.Mutex
	at time.Time // zero if it is not set
}

func newAlarm() *alarm { return &alarm{changed: make(chan struct{}, 1)} }

// set replaces the alarm's time; the zero time means never.
func (a *alarm) set(at time.Time) {
	a.mu.Lock()
	a.at = at
	a.mu.Unlock()
	token(a.changed)
}

// wait returns true when the alarm rings, which clears it, and false if ctx ended.
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
		in := time.Hour // any bound: the loop looks again
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
