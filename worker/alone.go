package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// gate blocks claims while a message runs alone.
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

// until waits until ok returns true. The caller holds g.mu, which until releases meanwhile.
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

// enter waits until the gate is open. After it the gate cannot shut until leave.
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

// shut closes the gate and waits until all claims inside have left. If the gate is closed, it
// first waits until it opens.
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

// aloneState is the state of a fetcher's attempts to run a message alone.
type aloneState struct {
	patience time.Duration // how long to wait for other messages to finish
	next     time.Duration // earliest time of the next attempt
}

const (
	firstPatience = 10 * time.Second
	mostPatience  = 10 * time.Minute
	// aloneTurn is how long messages that must run alone may delay the others of the
	// process, beyond the run of the last one.
	aloneTurn = time.Second
)

// mayRunAlone reports whether a message waits to run alone and an attempt is due.
func (f *fetcher) mayRunAlone(found claimed) bool { return found.aloneWaiting && now() >= f.alone.next }

// aloneIn is the time until the next attempt, 0 if none is needed.
func (f *fetcher) aloneIn(found claimed) time.Duration {
	if !found.aloneWaiting {
		return 0
	}
	return max(0, f.alone.next-now())
}

// runAlone stops all claims of the process, waits until all messages have finished and are
// settled, claims the message that must run alone, and waits until it is settled: if it
// kills the process, no other message is affected. If the others take too long, they
// continue, and the next attempt waits longer.
func (f *fetcher) runAlone(ctx, calls context.Context) {
	f.alone.patience = min(max(2*f.alone.patience, firstPatience), mostPatience)
	if f.gate.shut(ctx) != nil {
		return
	}
	defer f.gate.open()
	// The outcomes must be settled, too, or successes would be lost with the process.
	patience, cancel := context.WithTimeout(ctx, f.alone.patience)
	idle := f.pool.wait(patience) && f.acks.flush(patience) && !f.pool.paused()
	cancel()
	if !idle {
		f.alone.next = now() + f.alone.patience
		f.report.log.Warn("a message waits to run alone, but other messages do not finish; retrying later",
			slog.String("queue", f.route.ref.Queue), slog.Duration("in", f.alone.patience))
		return
	}
	// Other messages that must run alone follow at once, for aloneTurn: waiting for an idle
	// process before each of them would delay all messages that are due after them.
	for turn := now() + aloneTurn; ctx.Err() == nil; {
		// A claim for two gives the first place to a message that is due; a claim for one
		// does so only every other time.
		found, err := f.claim(ctx, calls, 2, true)
		if err != nil {
			f.recover(ctx, err)
			return
		}
		f.alone = aloneState{}
		if found.handed == 0 {
			f.alone.next = now() + 100*time.Millisecond // another worker has it
			return
		}
		for f.pool.wait(ctx) && f.backlog.waiting() {
			if !pause(ctx, 50*time.Millisecond) { // a heartbeat that is late keeps it from starting
				return // the worker stops, and releases it
			}
		}
		if !f.acks.flush(ctx) || !found.alone || now() > turn {
			return
		}
	}
}
