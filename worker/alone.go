package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// gate keeps claims out while a message runs alone.
type gate struct {
	mu      sync.Mutex
	inside  int
	closed  bool
	changed chan struct{}
}

func newGate() *gate { return &gate{changed: make(chan struct{})} }

func (g *gate) change() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// until waits, with g.mu held, until ok.
func (g *gate) until(ctx context.Context, ok func() bool) error {
	for !ok() {
		changed := g.changed
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		g.mu.Lock()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// enter waits until the gate is open and goes in.
func (g *gate) enter(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := g.until(ctx, func() bool { return !g.closed })
	if err == nil {
		g.inside++
	}
	return err
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	g.change()
}

// shut waits for its turn, closes the gate and waits until nobody is inside.
func (g *gate) shut(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.until(ctx, func() bool { return !g.closed }); err != nil {
		return err
	}
	g.closed = true
	err := g.until(ctx, func() bool { return g.inside == 0 })
	if err != nil {
		g.closed = false
		g.change()
	}
	return err
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = false
	g.change()
}

// aloneState remembers a subscription's tries to run a message alone.
type aloneState struct {
	patience time.Duration // how long to wait for the others to finish
	next     time.Duration // not before this time
}

const (
	firstPatience = 10 * time.Second
	mostPatience  = 10 * time.Minute
	// aloneTurn is how long messages that must run alone may keep the others
	// of the process waiting, beyond the run of the last one.
	aloneTurn = time.Second
)

// mayRunAlone reports whether a message waits to run alone and it is time to try.
func (f *fetcher) mayRunAlone(found claimed) bool { return found.wantsIdle && now() >= f.alone.next }

// aloneIn is how long until the next try, 0 if none is needed.
func (f *fetcher) aloneIn(found claimed) time.Duration {
	if !found.wantsIdle {
		return 0
	}
	return max(0, f.alone.next-now())
}

// runAlone stops all claims of the process, lets everything finish, claims the
// message that must run alone and waits until it has ended and is settled: if
// it kills the process, nothing else is lost with it. Where the others take too
// long they go on, and a later try waits longer.
func (f *fetcher) runAlone(ctx context.Context) {
	f.alone.patience = min(max(2*f.alone.patience, firstPatience), mostPatience)
	if f.rt.gate.shut(ctx) != nil {
		return
	}
	defer f.rt.gate.open()
	// Settled, too: what had ended well must not be lost with the process.
	patience, cancel := context.WithTimeout(ctx, f.alone.patience)
	idle := f.rt.pool.wait(patience) && f.rt.acks.flush(patience) && f.rt.pool.held.Load() == 0
	cancel()
	if !idle {
		f.alone.next = now() + f.alone.patience
		f.rt.log.Warn("a message waits to run alone, but others do not finish; trying again later",
			slog.String("queue", f.sub.ref.Queue), slog.Duration("in", f.alone.patience))
		return
	}
	// Others that must run alone follow at once, for a while: to make the
	// process idle anew for each would hold up all that is due behind them.
	for turn := now() + aloneTurn; ctx.Err() == nil; {
		// Of two, what is due gets the first; of one, only every other time.
		found, err := f.claim(ctx, 2, true)
		if err != nil {
			f.recover(ctx, err)
			return
		}
		f.alone = aloneState{}
		if found.handed == 0 {
			f.alone.next = now() + 100*time.Millisecond // another worker has it
			return
		}
		for f.rt.pool.wait(ctx) && f.sub.waiting() {
			if !pause(ctx, 50*time.Millisecond) { // a late heartbeat keeps it from starting
				return // the worker ends, and hands it back
			}
		}
		if !f.rt.acks.flush(ctx) || !found.alone || now() > turn {
			return
		}
	}
}
