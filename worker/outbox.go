package worker

import (
	"sync"
	"sync/atomic"
)

// outbox takes outcomes from the pool to the acknowledger. Each goroutine of the pool has a
// tray of its own, so that they do not contend for one lock.
type outbox struct {
	// idle says that the acknowledger waits for the bell.
	idle atomic.Bool
	bell chan struct{}
	// inOrder has outcomes that must be settled in the order in which they were put: those
	// of ordered keys, and those of messages that are released without a start.
	inOrder tray

	mu    sync.Mutex
	trays []*tray
}

// tray has outcomes that the acknowledger has not collected.
type tray struct {
	mu  sync.Mutex
	out []outcome
}

func newOutbox() *outbox { return &outbox{bell: make(chan struct{}, 1)} }

// tray adds a tray. Its user rings after it has put something into it.
func (o *outbox) tray() *tray {
	t := &tray{}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.trays = append(o.trays, t)
	return t
}

// ring says that there is something to settle. It costs almost nothing while a settle is in
// flight.
func (o *outbox) ring() {
	if o.idle.Load() && o.idle.CompareAndSwap(true, false) {
		o.bell <- struct{}{}
	}
}

// awake ends idleness without a ring.
func (o *outbox) awake() {
	if !o.idle.CompareAndSwap(true, false) {
		<-o.bell // another goroutine has ended it, and rings or is about to
	}
}

// put adds outcomes that are settled in this order.
func (o *outbox) put(outcomes []outcome) {
	o.inOrder.mu.Lock()
	o.inOrder.out = append(o.inOrder.out, outcomes...)
	o.inOrder.mu.Unlock()
	o.ring()
}

// collect appends all outcomes to batch, those that were put in order last.
func (o *outbox) collect(batch []outcome) []outcome {
	o.mu.Lock()
	trays := o.trays
	o.mu.Unlock()
	for _, t := range trays {
		batch = t.empty(batch)
	}
	return o.inOrder.empty(batch)
}

func (t *tray) empty(into []outcome) []outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	into = append(into, t.out...)
	clear(t.out)
	t.out = t.out[:0]
	return into
}
