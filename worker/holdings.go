package worker

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/posthaste-mq/posthaste"
)

// holdings knows what this process holds: its registration, the claims on
// their way, and the deliveries that are not settled.
type holdings struct {
	subs []*subscription

	mu         sync.Mutex
	worker     atomic.Int64       // 0 while not registered; changed under mu
	registered chan struct{}      // closed while registered
	number     int64              // the newest claim's number
	flying     map[int64]struct{} // numbers whose answer is not here yet
	segments   map[*segment]struct{}
	open       int // deliveries not settled
}

func newHoldings(subs []*subscription) *holdings {
	return &holdings{subs: subs, registered: make(chan struct{}), flying: map[int64]struct{}{}, segments: map[*segment]struct{}{}}
}

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

// lose ends a registration that was declared lost: what was prefetched under
// it and not started is dropped, for it runs elsewhere. It returns false if
// that was known already.
func (h *holdings) lose(worker posthaste.WorkerID) (dropped int, news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.id() != worker || worker == 0 {
		return 0, false
	}
	h.worker.Store(0)
	h.registered = make(chan struct{})
	for _, sub := range h.subs {
		if sub.once.Load() {
			continue // it runs nowhere else
		}
		items, _ := sub.takeAll()
		dropped += len(items) + len(sub.order.takeAll())
		sub.order = nil
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

// finish says that a claim's answer is here, or that it was refused. Its
// deliveries are kept and made available in the same moment; false means that
// the registration was lost meanwhile and they are dropped.
func (h *holdings) finish(number int64, seg *segment) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.flying, number)
	if seg == nil {
		return true
	}
	if !h.lives(seg) && !seg.sub.once.Load() {
		return false
	}
	h.segments[seg] = struct{}{}
	h.open += seg.open
	seg.sub.append(seg)
	return true
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

// lives reports whether the registration that seg was claimed under is still
// the current one.
func (h *holdings) lives(seg *segment) bool { return seg.worker == h.id() }

// id is the current registration, 0 while there is none.
func (h *holdings) id() posthaste.WorkerID { return posthaste.WorkerID(h.worker.Load()) }

// waiting takes what waits for others of its key, to hand it back.
func (h *holdings) waiting(sub *subscription) []*segment {
	h.mu.Lock()
	defer h.mu.Unlock()
	return sub.order.takeAll()
}

// memory tells what the store may be compared with: the registration, the
// highest number up to which every claim's answer is here, and all deliveries
// of open claims.
func (h *holdings) memory() (worker posthaste.WorkerID, upTo int64, known map[posthaste.DeliveryID]struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	upTo = h.number
	for number := range h.flying {
		upTo = min(upTo, number-1)
	}
	known = make(map[posthaste.DeliveryID]struct{}, h.open)
	for seg := range h.segments {
		for i := range seg.items {
			known[seg.items[i].ID] = struct{}{}
		}
	}
	return h.id(), upTo, known
}

// forget gives up on the answers that are still missing: at the end nobody
// waits for them any more, and what they handed out is released.
func (h *holdings) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.flying)
}

// leaving tells the registration to end and how much is left unsettled.
func (h *holdings) leaving() (posthaste.WorkerID, int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.id(), h.open
}
