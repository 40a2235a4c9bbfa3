package worker

import (
	"slices"

	"github.com/posthaste-mq/posthaste"
)

// deliverySet has deliveries whose messages were cancelled while they were handed out.
type deliverySet map[posthaste.DeliveryID]struct{}

// cancel ends the contexts of handlers whose messages were cancelled, and keeps such messages
// from starting. ids are all that the store knows of, of those that it handed to this worker.
func (p *pool) cancel(ids []posthaste.DeliveryID) {
	if len(ids) == 0 {
		p.cancelled.Store(nil)
		return
	}
	set := make(deliverySet, len(ids))
	for _, id := range ids {
		set[id] = struct{}{}
	}
	p.cancelled.Store(&set)
	// After it was stored: a run that is not in a slot yet looks there itself.
	p.mu.Lock()
	slots := slices.Clone(p.slots)
	p.mu.Unlock()
	for _, s := range slots {
		if r := s.current.Load(); r != nil && r.state.Load() == runActive {
			r.markCancelled(set)
		}
	}
}

// wasCancelled reports whether all messages of a run were cancelled before it began. It must be in
// its slot: a cancel that comes later finds it there.
func (p *pool) wasCancelled(r *run) bool {
	set := p.cancelled.Load()
	return set != nil && r.markCancelled(*set)
}

// markCancelled notes that messages of the run were cancelled. Once all of them are, it ends the
// handler's context and returns true.
func (r *run) markCancelled(set deliverySet) (all bool) {
	all = true
	mark := func(items []posthaste.RawDelivery) {
		for i := range items {
			id := items[i].ID
			if _, ok := set[id]; ok {
				if r.gone == nil {
					r.gone = deliverySet{}
				}
				r.gone[id] = struct{}{}
			}
			_, gone := r.gone[id]
			all = all && gone
		}
	}
	r.mu.Lock()
	mark(r.items())
	if r.call != nil {
		for _, more := range r.call.more {
			mark(more.items())
		}
	}
	r.mu.Unlock()
	if all {
		r.refuse(posthaste.ErrCancelled)
	}
	return all
}

// Cancelled implements [posthaste.Notebook].
func (r *run) Cancelled(delivery posthaste.DeliveryID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, gone := r.gone[delivery]
	return gone
}
