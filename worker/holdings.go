package worker

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/posthaste-mq/posthaste"
)

// holdings knows what this process holds: its registration, the claims in flight, and the
// unsettled deliveries. It guards the backlog and the order of each route.
type holdings struct {
	prefetched map[*route]*prefetched // does not change

	mu         sync.Mutex
	worker     atomic.Int64       // 0 while not registered; changed under mu
	registered chan struct{}      // closed while registered
	number     int64              // of the newest claim
	flying     map[int64]struct{} // numbers of claims that are not answered
	segments   map[*segment]struct{}
	open       int // unsettled deliveries
}

// prefetched has the messages that were claimed for one route and have not started.
type prefetched struct {
	*backlog
	order *order // of an ordered queue, else nil
}

func newHoldings(routes []*route) *holdings {
	h := &holdings{prefetched: map[*route]*prefetched{}, registered: make(chan struct{}), flying: map[int64]struct{}{}, segments: map[*segment]struct{}{}}
	for _, r := range routes {
		h.prefetched[r] = &prefetched{backlog: newBacklog()}
	}
	return h
}

// backlog returns what can start for a route.
func (h *holdings) backlog(r *route) *backlog { return h.prefetched[r].backlog }

// register notes a new registration.
func (h *holdings) register(worker posthaste.WorkerID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.worker.Store(int64(worker))
	close(h.registered)
}

// current waits until there is a registration.
func (h *holdings) current(ctx context.Context) (posthaste.WorkerID, error) {
	for {
		h.mu.Lock()
		worker, registered := h.id(), h.registered
		h.mu.Unlock()
		if worker != 0 {
			return worker, nil
		}
		select {
		case <-registered:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// lose ends a registration that was declared lost. It drops the messages that were
// prefetched under it and have not started, because other workers get them, except for
// those of at-most-once queues, which no other worker gets. It returns false if the
// registration had ended before.
func (h *holdings) lose(worker posthaste.WorkerID) (dropped int, news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.id() != worker || worker == 0 {
		return 0, false
	}
	h.worker.Store(0)
	h.registered = make(chan struct{})
	for route, p := range h.prefetched {
		if route.once.Load() {
			continue
		}
		items, _ := p.takeAll()
		dropped += len(items) + len(p.order.takeAll())
		p.order = nil
	}
	clear(h.segments)
	h.open = 0
	return dropped, true
}

// begin gives the next claim its number.
func (h *holdings) begin() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.number++
	h.flying[h.number] = struct{}{}
	return h.number
}

// finish says that a claim was answered with seg, or was refused if seg is nil. It makes
// the deliveries available under the same lock. It returns false, and drops them, if the
// registration was lost meanwhile.
func (h *holdings) finish(number int64, seg *segment) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.flying, number)
	if seg == nil {
		return true
	}
	if !h.lives(seg) && !seg.route.once.Load() {
		return false
	}
	h.hold(seg)
	h.prefetched[seg.route].append(seg)
	return true
}

// finishOrdered is finish for a claim of an ordered queue. It makes the first message of
// each key available. back has the outcomes of those that must be released. At most most
// messages of a key wait, see [order.claimed].
func (h *holdings) finishOrdered(number int64, route *route, worker posthaste.WorkerID, most int, items []posthaste.RawDelivery) (kept bool, back []outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.flying, number)
	if worker != h.id() {
		return false, nil
	}
	p := h.prefetched[route]
	if p.order == nil {
		p.order = newOrder()
	}
	p.order.forget(h.answered())
	one := func(i int) *segment { return h.hold(newSegment(route, worker, items[i:i+1:i+1])) }
	ready := make([]posthaste.RawDelivery, 0, len(items))
	for i := range items {
		key := items[i].Key
		if key == "" {
			ready = append(ready, items[i])
			continue
		}
		switch p.order.claimed(number, key, most) {
		case turnBack:
			back = append(back, releasedInOrder(one(i)))
		case turnWait:
			p.order.wait(key, one(i))
		case turnNow:
			ready = append(ready, items[i])
		}
	}
	if len(ready) > 0 {
		p.append(h.hold(newSegment(route, worker, ready)))
	}
	return true, back
}

// hold adds seg to the held segments. The caller holds h.mu.
func (h *holdings) hold(seg *segment) *segment {
	h.segments[seg] = struct{}{}
	h.open += seg.open
	return seg
}

// ordered calls f with the prefetched messages of an ordered queue, unless the registration
// that seg was claimed under is lost.
func (h *holdings) ordered(seg *segment, f func(p *prefetched)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.prefetched[seg.route]; p.order != nil && h.lives(seg) {
		f(p)
	}
}

// ended says that a message of an ordered queue is done, and makes the next one of its key
// available.
func (h *holdings) ended(seg *segment, key string) {
	h.ordered(seg, func(p *prefetched) {
		if next := p.order.ended(key); next != nil {
			p.append(next)
		}
	})
}

// unfinished says that a message of an ordered queue is not done. It returns the outcomes
// of those behind it, which must be released.
func (h *holdings) unfinished(seg *segment, key string) (back []outcome) {
	h.ordered(seg, func(p *prefetched) {
		for _, w := range p.order.unfinished(key) {
			back = append(back, releasedInOrder(w))
		}
	})
	return back
}

// restart says that an outcome that closed a key of an ordered queue is on record.
func (h *holdings) restart(seg *segment, key string) {
	h.ordered(seg, func(p *prefetched) { p.order.restart(key, h.number) })
}

// settled notes that n deliveries of seg are settled.
func (h *holdings) settled(seg *segment, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.segments[seg]; !ok {
		return
	}
	h.open -= n
	if seg.open -= n; seg.open == 0 {
		delete(h.segments, seg)
	}
}

// unsettled counts the deliveries held.
func (h *holdings) unsettled() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open
}

// lives reports whether the registration that seg was claimed under is still the current one.
func (h *holdings) lives(seg *segment) bool { return seg.worker == h.id() }

// id is the current registration, or 0 while the worker has none.
func (h *holdings) id() posthaste.WorkerID { return posthaste.WorkerID(h.worker.Load()) }

// unstarted takes all messages of a route that have not started and returns the outcomes
// that release them.
func (h *holdings) unstarted(r *route) (back []outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.prefetched[r]
	items, from := p.takeAll()
	for i := range items {
		back = append(back, released(from[i], &items[i]))
	}
	for _, seg := range p.order.takeAll() {
		back = append(back, released(seg, &seg.items[0]))
	}
	return back
}

// answered is the number up to which all claims are answered. The caller holds h.mu.
func (h *holdings) answered() int64 {
	upTo := h.number
	for number := range h.flying {
		upTo = min(upTo, number-1)
	}
	return upTo
}

// memory returns what can be compared with the store: the registration, the number up to
// which all claims are answered, and the deliveries of all segments that are not settled.
func (h *holdings) memory() (worker posthaste.WorkerID, upTo int64, known map[posthaste.DeliveryID]struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known = make(map[posthaste.DeliveryID]struct{}, h.open)
	for seg := range h.segments {
		for i := range seg.items {
			known[seg.items[i].ID] = struct{}{}
		}
	}
	return h.id(), h.answered(), known
}

// forget gives up on claims in flight. At the end of the worker nothing waits for their
// answers, and their deliveries are released.
func (h *holdings) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.flying)
}

// leaving returns the registration to end and how many deliveries are left unsettled.
func (h *holdings) leaving() (posthaste.WorkerID, int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.id(), h.open
}
