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
	var gone []posthaste.DeliveryID
	count := 0
	look := func(items []posthaste.RawDelivery) {
		count += len(items)
		for i := range items {
			if _, ok := set[items[i].ID]; ok {
				gone = append(gone, items[i].ID)
			}
		}
	}
	look(r.items())
	if r.call != nil {
		for _, more := range r.call.more {
			look(more.items())
		}
	}
	if len(gone) == 0 {
		return false // most runs need no desk, also while others are cancelled
	}
	r.withDesk(func(d *desk) {
		for _, id := range gone {
			d.gone[id] = struct{}{}
		}
		all = len(d.gone) == count
	})
	if all {
		r.refuse(posthaste.ErrCancelled)
	}
	return all
}

// Cancelled implements [posthaste.Notebook].
func (r *run) Cancelled(delivery posthaste.DeliveryID) bool {
	if r.desk.Load() == nil {
		return false
	}
	gone := false
	r.withDesk(func(d *desk) { _, gone = d.gone[delivery] })
	return gone
}
