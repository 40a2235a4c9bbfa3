package worker

import (
	"math"

	"github.com/posthaste-mq/posthaste"
)

// order keeps the messages of an ordered queue in sequence, key by key: one is in
// the pool, and those of its key that were claimed after it wait here. What is
// claimed comes in order, and while a worker has claims of a key's lane open
// nobody else gets any. Guarded by holdings.mu; nil for other queues.
type order struct {
	keys    map[string]*sequence
	waiting int // messages, of all keys
	bytes   int // of their payloads
}

// sequence is a key with something in the pool or waiting, or one that failed.
type sequence struct {
	running bool
	waiting []*segment // of one message each
	// until: one of its messages was not finished, or there were too many, and it
	// goes first when it comes back. Whatever claims up to this number hand out of
	// the key was claimed before the store knew, and is handed back. 0 if all went on.
	until int64
	// unsaid counts what the store must know of before the key opens again.
	unsaid int
}

// close has everything handed back that is claimed of the key, until restart.
func (q *sequence) close() {
	q.unsaid++
	q.until = math.MaxInt64
}

// handBack closes the key until the store knows that seg's message, which has not
// started, is released.
func (q *sequence) handBack(seg *segment) outcome {
	q.close()
	o := released(seg, &seg.items[0])
	o.key, o.closes = seg.items[0].Key, true
	return o
}

// finishOrdered is finish for a claim of an ordered queue. Of each key the first
// message is made available; back are those that must be handed back. What waits
// is bounded, to batch messages of a key, ten times that and so many bytes of all:
// beyond that a key's tail is handed back, and waits in the store without holding
// up other keys.
func (h *holdings) finishOrdered(number int64, sub *subscription, worker posthaste.WorkerID, batch int, items []posthaste.RawDelivery) (kept bool, back []outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.flying, number)
	if worker != h.id() {
		return false, nil
	}
	if sub.order == nil {
		sub.order = &order{keys: map[string]*sequence{}}
	}
	o := sub.order
	h.forgetKeys(o)
	ready := make([]posthaste.RawDelivery, 0, len(items))
	for i := range items {
		key := items[i].Key
		if key == "" {
			ready = append(ready, items[i])
			continue
		}
		q := o.keys[key]
		switch {
		case q != nil && (number <= q.until || q.running && (len(q.waiting) >= batch || o.waiting >= 10*batch || o.bytes >= prefetchBytes)):
			// Until the store knows that, it takes this one to be running here, and
			// hands out what comes after it.
			back = append(back, q.handBack(h.hold(sub, worker, items[i:i+1:i+1])))
			continue
		case q != nil && q.running:
			q.waiting = append(q.waiting, h.hold(sub, worker, items[i:i+1:i+1]))
			o.waiting++
			o.bytes += len(items[i].Payload)
			continue
		case q == nil:
			q = &sequence{}
			o.keys[key] = q
		}
		q.running, q.until = true, 0
		ready = append(ready, items[i])
	}
	if len(ready) > 0 {
		sub.append(h.hold(sub, worker, ready))
	}
	return true, back
}

// hold needs h.mu.
func (h *holdings) hold(sub *subscription, worker posthaste.WorkerID, items []posthaste.RawDelivery) *segment {
	seg := newSegment(sub, worker, items)
	h.segments[seg] = struct{}{}
	h.open += seg.open
	return seg
}

// ended says that a message of an ordered queue is done, and makes the next of its
// key available.
func (h *holdings) ended(seg *segment, key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := seg.sub.order
	if o == nil || !h.lives(seg) || o.keys[key] == nil {
		return
	}
	switch q := o.keys[key]; {
	case len(q.waiting) > 0:
		next := q.waiting[0]
		q.waiting = q.waiting[1:]
		o.forget(next)
		seg.sub.append(next)
	case q.until > 0:
		q.running = false // not forgotten before what was claimed earlier is here
	default:
		delete(o.keys, key)
	}
}

// unfinished says that a message of an ordered queue is not done. Those that wait
// behind it are to be handed back, for it comes first when it comes again. The key
// opens when the store knows of all of them: of a message that is dead it may know
// earlier than of these, and would hand out what comes after them.
func (h *holdings) unfinished(seg *segment, key string) (back []outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := seg.sub.order
	if o == nil || !h.lives(seg) || o.keys[key] == nil {
		return nil
	}
	q := o.keys[key]
	q.running = false
	q.close()
	for _, w := range q.waiting {
		o.forget(w)
		back = append(back, q.handBack(w))
	}
	q.waiting = nil
	return back
}

// restart says that the store knows of the key's unfinished message, or of what was
// handed back: what claims with higher numbers hand out of the key comes after it.
func (h *holdings) restart(seg *segment, key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o := seg.sub.order; o != nil && h.lives(seg) {
		if q := o.keys[key]; q != nil && q.unsaid > 0 {
			if q.unsaid--; q.unsaid == 0 {
				q.until = h.number
			}
		}
	}
}

// forgetKeys forgets keys that failed, once no claim is on its way any more that
// the store may have answered before it knew. It needs h.mu.
func (h *holdings) forgetKeys(o *order) {
	if len(o.keys) < 1024 {
		return // not worth the look
	}
	oldest := h.number
	for number := range h.flying {
		oldest = min(oldest, number-1)
	}
	for key, q := range o.keys {
		if !q.running && q.until <= oldest {
			delete(o.keys, key)
		}
	}
}

// takeAll takes whatever waits, to drop it or to hand it back.
func (o *order) takeAll() (waiting []*segment) {
	if o == nil {
		return nil
	}
	for _, q := range o.keys {
		waiting = append(waiting, q.waiting...)
		q.waiting = nil
	}
	o.waiting, o.bytes = 0, 0
	return waiting
}

// forget counts a message no more that does not wait any longer.
func (o *order) forget(seg *segment) {
	o.waiting--
	o.bytes -= len(seg.items[0].Payload)
}

// released hands back a message that has not started.
func released(seg *segment, d *posthaste.RawDelivery) outcome {
	o := outcome{seg: seg, message: d.MessageID, attempt: d.Attempt}
	o.Delivery, o.Outcome = d.ID, posthaste.Released
	return o
}
