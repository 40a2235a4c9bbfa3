package worker

import "math"

// order keeps the messages of an ordered queue in sequence, key by key: one message of a key
// is in the pool, and those claimed after it wait here. Claims hand out the messages of a
// key in order, and while a worker has open claims of a key's lane, no other worker gets
// messages of it. order has no lock of its own; [holdings] guards it.
type order struct {
	keys    map[string]*sequence
	waiting int // messages, of all keys
	bytes   int // of their payloads
}

// sequence is the state of one key that has a message in the pool, or whose message failed.
type sequence struct {
	running bool
	waiting []*segment // of one message each
	// until is not 0 after a message of the key was not finished, or was released because
	// too many waited. That message comes back first. The store handed out what comes with
	// claims up to this number before it knew of that, so it is released.
	until int64
	// unsaid counts the outcomes that must be on record before the key opens again.
	unsaid int
}

// turn says what happens to a message that was claimed.
type turn int

const (
	turnNow  turn = iota // it may run at once
	turnWait             // it waits for others of its key
	turnBack             // it is released
)

func newOrder() *order { return &order{keys: map[string]*sequence{}} }

// claimed decides about a message that the claim with this number handed out. After turnWait
// the caller calls wait. After turnBack the key is closed until the caller has reported the
// release with restart: until the release is on record, the store takes the message to be
// running here and hands out those after it.
//
// What waits is bounded, to most messages of a key, and to 10 times as many and prefetchBytes
// of all keys. Beyond that the last messages of a key are released, and wait in the store
// without delaying other keys.
func (o *order) claimed(number int64, key string, most int) turn {
	q := o.keys[key]
	switch {
	case q == nil:
		q = &sequence{}
		o.keys[key] = q
	case number <= q.until || q.running && (len(q.waiting) >= most || o.waiting >= 10*most || o.bytes >= prefetchBytes):
		q.close()
		return turnBack
	case q.running:
		return turnWait
	}
	q.running, q.until = true, 0
	return turnNow
}

// wait adds the message of seg to those that wait for others of their key.
func (o *order) wait(key string, seg *segment) {
	q := o.keys[key]
	q.waiting = append(q.waiting, seg)
	o.waiting++
	o.bytes += len(seg.items[0].Payload)
}

// ended says that the key's message in the pool is done. It returns the next one, nil if
// none waits.
func (o *order) ended(key string) *segment {
	q := o.keys[key]
	switch {
	case q == nil:
	case len(q.waiting) > 0:
		next := q.waiting[0]
		q.waiting = q.waiting[1:]
		o.left(next)
		return next
	case q.until > 0:
		q.running = false // kept, because earlier claims may still be in flight
	default:
		delete(o.keys, key)
	}
	return nil
}

// unfinished says that the key's message in the pool is not done. It returns the messages
// behind it, which are to be released because that message comes back first. The key opens
// after restart was called once for it and once for each of them: the store may know
// earlier that a message is dead than that those behind it are released, and would then
// hand out those after them.
func (o *order) unfinished(key string) (back []*segment) {
	q := o.keys[key]
	if q == nil {
		return nil
	}
	q.running = false
	q.close()
	for _, seg := range q.waiting {
		o.left(seg)
		q.close()
	}
	back, q.waiting = q.waiting, nil
	return back
}

// restart says that one outcome that closed the key is on record. number is that of the
// newest claim: those with higher numbers hand out what comes after that outcome.
func (o *order) restart(key string, number int64) {
	if q := o.keys[key]; q != nil && q.unsaid > 0 {
		if q.unsaid--; q.unsaid == 0 {
			q.until = number
		}
	}
}

// forget forgets keys that failed once all claims up to until are answered. oldest is the
// number up to which all claims are.
func (o *order) forget(oldest int64) {
	if len(o.keys) < 1024 {
		return // too few to be worth the search
	}
	for key, q := range o.keys {
		if !q.running && q.until <= oldest {
			delete(o.keys, key)
		}
	}
}

// takeAll takes all messages that wait, to drop or release them.
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

// left counts out a message that no longer waits.
func (o *order) left(seg *segment) {
	o.waiting--
	o.bytes -= len(seg.items[0].Payload)
}

// close releases the claimed messages of the key until restart.
func (q *sequence) close() {
	q.unsaid++
	q.until = math.MaxInt64
}
