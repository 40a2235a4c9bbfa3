package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// The doorbell's times. The pauses between looks grow by half each time, so that a message
// whose sender was in flight for t is found at most about t/2 after it commits.
const (
	firstLook = 4 * time.Millisecond
	// slowestLook leaves a margin for a busy machine: a message whose sender was in flight
	// must start within 300 ms.
	slowestLook = 200 * time.Millisecond
	// A process that relies on keys of another process asks for them from time to time,
	// because the other process may end.
	firstAsk   = 8 * time.Millisecond
	slowestAsk = time.Second
	// askAgain is the pause after a send held the doze key for a moment.
	askAgain = 2 * time.Millisecond
	// goneLook is the pause between looks while there is no listening connection.
	goneLook = time.Second
	// awakeDoze is how long the doze key is kept after a Sleep. An idle queue is in Sleep
	// again by then; under load senders should not notify.
	awakeDoze = 50 * time.Millisecond
	// awakeBell is how long the bell key is kept after a Sleep of at least that length. In
	// light traffic a message is handled within it, which saves releasing the key and
	// asking for it again.
	awakeBell = 5 * time.Millisecond
)

// armed says how a waiting queue is woken. Most values are results of posthaste.arm.
type armed string

const (
	armedBell  armed = "bell"  // this session holds the bell key: all sends notify
	armedHeard armed = "heard" // another session holds the bell key
	armedDoze  armed = "doze"  // this session holds the doze key: new sends notify, but look for one in flight
	armedDozed armed = "dozed" // another session holds the doze key, and looks
	armedAgain armed = "again" // no key: ask again soon
	armedGone  armed = "gone"  // no key: there is no listening connection
	armedWoken armed = "woken" // no key: Wake was called
	armedLimit armed = "limit" // no key: messages wait for a limit, and settlements notify
)

// doorbell is the doorbell of one process. One connection listens and holds the keys of all
// queues, which are advisory locks. It never sends, because a send on it would not find the
// lock of its own session. The listener's goroutine owns the connection; a Sleep passes it
// requests and is signaled when something happened.
type doorbell struct {
	listener

	mu      sync.Mutex
	waiters map[string]*waiter
	byID    map[int32]*waiter
	closed  bool
}

// waiter is one queue of the process. doorbell.mu guards all fields.
type waiter struct {
	queue   string
	id      int32 // 0 until armed for the first time
	waiting bool  // a Sleep is running
	since   time.Time

	bell, doze bool // keys that our session holds
	limit      bool // the last look found that messages wait for a limit
	arming     *request

	// Reasons to end or restart the wait of a Sleep: a notification, Wake, and a new
	// connection. signal has room for one token, which says that one of them changed.
	notified, woken, reconnected bool
	signal                       chan struct{}

	// While the doze key is held: the number of successive looks that found something, the
	// pause before the next look, and the timer that releases the key.
	finds        int
	interval     time.Duration
	releaseTimer *time.Timer
}

// Doorbell implements [posthaste.Engine]. It opens one connection in addition to the pool,
// which the doorbell keeps until Close and replaces if it is lost. While messages arrive more
// often than about every 5 ms, over all queues of the process, the doorbell looks every few
// milliseconds instead of listening, because each send that notifies takes a lock on the
// whole database. With [WithPollingOnly] it opens no connection and looks in growing
// intervals.
func (e *Engine) Doorbell(ctx context.Context) (posthaste.Doorbell, error) {
	if e.polling {
		return newPollingBell(), nil
	}
	d, err := e.openDoorbell(ctx)
	if err != nil {
		return nil, err
	}
	return e.pacer.Pace(d), nil
}

// openDoorbell opens a doorbell that listens.
func (e *Engine) openDoorbell(ctx context.Context) (*doorbell, error) {
	d := &doorbell{waiters: make(map[string]*waiter), byID: make(map[int32]*waiter)}
	d.listener = newListener(e.pool.Config(), e.log, d)
	conn, err := d.connect(ctx)
	if err != nil {
		return nil, readError(err)
	}
	go d.run(conn)
	return d, nil
}

// Sleep implements [posthaste.Doorbell]. It calls look again after each pause while a sender
// that will not notify is still in flight.
func (d *doorbell) Sleep(ctx context.Context, queue string, look func(ctx context.Context) (posthaste.LookReply, error)) error {
	w, err := d.beginSleep(queue)
	if err != nil {
		return err
	}
	defer func() { d.endSleep(w, ctx.Err() != nil) }()
	var (
		due       time.Time
		before    armed
		beforeGen int
		ask       = firstAsk
	)
	for {
		state, gen, err := d.arm(ctx, w)
		if err != nil || state == armedWoken {
			return err
		}
		// With the same key as before no message was missed.
		if state != before || gen != beforeGen || state == armedDoze || state == armedAgain || state == armedGone || state == armedLimit {
			d.drain(w)
			reply, err := look(ctx)
			if err != nil {
				return err
			}
			if d.looked(w, reply); reply.Found {
				return nil
			}
			if state == armedLimit && !reply.AtLimit {
				continue // no longer at the limit: sends must notify
			}
			if reply.AtLimit && state != armedGone {
				state = armedLimit
			}
			if due = (time.Time{}); reply.NextDue >= 0 {
				due = time.Now().Add(reply.NextDue)
			}
		}
		before, beforeGen = state, gen
		woken, err := d.wait(ctx, w, d.pause(w, state, &ask), due)
		if woken || err != nil {
			return err
		}
	}
}

// beginSleep begins a Sleep.
func (d *doorbell) beginSleep(queue string) (*waiter, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errDoorbellClosed()
	}
	w := d.waiters[queue]
	if w == nil {
		w = &waiter{queue: queue, signal: make(chan struct{}, 1)}
		d.waiters[queue] = w
	}
	if w.waiting {
		return nil, errAlreadyWaiting(queue)
	}
	if w.releaseTimer != nil {
		w.releaseTimer.Stop()
		w.releaseTimer = nil
	}
	w.waiting, w.since, w.notified, w.woken, w.reconnected = true, time.Now(), false, false, false
	return w, nil
}

// endSleep ends a Sleep. The keys are kept for a while: until their release a few more sends
// notify, which costs them time and loses nothing. leaving says that this process will not
// look again, so that other processes that rely on its keys must be notified.
func (d *doorbell) endSleep(w *waiter, leaving bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.waiting = false
	if leaving {
		d.release(w, true)
		return
	}
	keep := awakeBell
	switch {
	case w.doze:
		keep = awakeDoze
	case !w.bell:
		return
	case !w.notified || time.Since(w.since) < awakeBell:
		// Without a notification the bell key may be that of a dropped queue, which
		// only arming again reveals. After a short Sleep traffic is dense, and senders
		// should not notify.
		d.releaseBell(w, false)
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(keep, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if w.releaseTimer == timer && !w.waiting {
			d.release(w, false)
		}
	})
	w.releaseTimer = timer
}

// arm takes a key that makes sends notify, if possible, and returns which one. gen identifies
// the connection: keys of an earlier connection are gone.
func (d *doorbell) arm(ctx context.Context, w *waiter) (state armed, gen int, err error) {
	d.mu.Lock()
	w.reconnected = false
	if d.closed || !d.up {
		gen = d.gen
		d.mu.Unlock()
		return armedGone, gen, ctx.Err()
	}
	if w.bell || w.limit && w.id != 0 {
		gen, state = d.gen, armedBell
		if !w.bell {
			state = armedLimit
		}
		d.mu.Unlock()
		return state, gen, ctx.Err()
	}
	// A request that an earlier Sleep did not wait for will do, because the look comes
	// after its response. Two requests would take the lock twice.
	if w.arming == nil {
		w.arming = d.enqueue(&request{waiter: w, arm: true, dozing: w.doze})
	}
	r := w.arming
	d.mu.Unlock()
	for {
		select {
		case <-r.done:
			return r.state, r.gen, r.err
		case <-ctx.Done():
			return armedGone, 0, ctx.Err()
		case <-w.signal:
			// Wake must not wait for a connection that does not respond.
			d.mu.Lock()
			woken := w.woken
			d.mu.Unlock()
			if woken {
				return armedWoken, 0, nil
			}
		}
	}
}

// recordArmed records the response to a request, in the listener's goroutine.
func (d *doorbell) recordArmed(r *request, id int32, state armed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := r.waiter
	w.arming = nil
	r.gen = d.gen
	if w.id != id {
		// The queue was dropped, and a new one has its name.
		if w.doze {
			d.releaseDoze(w, false)
		}
		delete(d.byID, w.id)
		if r.dozing && state == armedDoze {
			state = armedAgain
		}
		w.id = id
	}
	d.byID[id] = w
	switch state {
	case armedBell, armedHeard: // all sends notify
		w.bell = state == armedBell
		if w.doze {
			d.releaseDoze(w, false)
		}
	case armedDoze:
		if !r.dozing {
			w.doze, w.finds, w.interval = true, 0, firstLook
		} else if !w.doze {
			state = armedAgain // released since the request
		}
	}
	r.state = state
	if !w.waiting { // the Sleep that asked has ended
		if w.bell {
			d.releaseBell(w, true)
		}
		if w.doze && !r.dozing {
			d.releaseDoze(w, true)
		}
	}
}

// release releases the keys that are held.
func (d *doorbell) release(w *waiter, leaving bool) {
	if w.bell {
		d.releaseBell(w, leaving)
	}
	if w.doze {
		d.releaseDoze(w, leaving)
	}
}

func (d *doorbell) releaseBell(w *waiter, leaving bool) {
	w.bell = false
	d.enqueue(&request{waiter: w, id: w.id, unlock: "bell", notify: leaving})
}

func (d *doorbell) releaseDoze(w *waiter, leaving bool) {
	w.doze, w.finds, w.interval = false, 0, 0
	d.enqueue(&request{waiter: w, id: w.id, unlock: "doze", notify: leaving})
}

// drain discards the notifications before a look. The look sees their messages, and a
// notification that was kept would cause another look for nothing.
func (d *doorbell) drain(w *waiter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.notified = false
}

// looked records the result of a look. One find with the doze key may be the message of the
// sender in flight; two in a row mean traffic, during which senders should not notify. Nor
// should they while messages wait for a limit.
func (d *doorbell) looked(w *waiter, reply posthaste.LookReply) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.limit = reply.AtLimit && !reply.Found
	switch {
	case w.limit:
		d.release(w, true) // other processes may rely on the keys and not be at a limit
	case !w.doze:
	case !reply.Found:
		w.finds = 0
	case w.finds == 0:
		w.finds = 1
	default:
		d.releaseDoze(w, false)
	}
}

// pause returns how long to wait before the next step; 0 means without limit.
func (d *doorbell) pause(w *waiter, state armed, ask *time.Duration) time.Duration {
	switch state {
	case armedBell, armedLimit:
		return 0
	case armedAgain:
		return askAgain
	case armedGone:
		return jittered(goneLook)
	case armedDoze:
		d.mu.Lock()
		defer d.mu.Unlock()
		// Notifications do not restart the pause: a busy queue with one long-running
		// sender would otherwise look all the time.
		p := max(w.interval, firstLook)
		w.interval = min(p*3/2, slowestLook)
		return p
	}
	p := *ask
	*ask = min(p*2, slowestAsk)
	return jittered(p)
}

// wait waits for a notification, the due time or Wake, and then returns true. It returns
// false if the Sleep must arm again.
func (d *doorbell) wait(ctx context.Context, w *waiter, pause time.Duration, due time.Time) (woken bool, err error) {
	var alarm <-chan time.Time
	dueFirst := false
	if !due.IsZero() {
		if left := max(time.Until(due), 0); pause == 0 || left <= pause {
			pause, dueFirst = max(left, 1), true
		}
	}
	if pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		alarm = timer.C
	}
	for {
		d.mu.Lock()
		over, changed := w.notified || w.woken || d.closed, w.reconnected
		d.mu.Unlock()
		if over || changed {
			return over, ctx.Err()
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-alarm:
			return dueFirst, nil
		case <-w.signal:
		}
	}
}

// LetGo releases the keys of a queue that an earlier Sleep kept. The caller polls from now on
// and does not need senders to notify.
func (d *doorbell) LetGo(queue string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.waiters[queue]; w != nil && !w.waiting {
		if w.releaseTimer != nil {
			w.releaseTimer.Stop()
			w.releaseTimer = nil
		}
		d.release(w, false)
	}
}

// heard wakes the queue with the id, in the listener's goroutine.
func (d *doorbell) heard(id int32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.byID[id]; w != nil {
		w.notified = true
		w.wake()
	}
}

// Wake implements [posthaste.Doorbell].
func (d *doorbell) Wake(queue string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.waiters[queue]; w != nil && w.waiting {
		w.woken = true
		w.wake()
	}
}

// Close implements [posthaste.Doorbell]. It waits until the connection is closed, which
// releases the keys.
func (d *doorbell) Close() {
	d.mu.Lock()
	d.closed = true
	for _, w := range d.waiters {
		w.wake()
		if w.releaseTimer != nil {
			w.releaseTimer.Stop()
		}
	}
	d.stop()
	d.mu.Unlock()
	<-d.ended
}

func (w *waiter) wake() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// jittered returns d shortened by up to a quarter, at random.
func jittered(d time.Duration) time.Duration {
	return d - rand.N(d/4+1)
}

func errDoorbellClosed() error {
	return &posthaste.Error{Code: posthaste.CodeRefused, Message: "the doorbell is closed", Hint: "open another one"}
}

func errAlreadyWaiting(queue string) error {
	return &posthaste.Error{Code: posthaste.CodeRefused, Message: fmt.Sprintf("another Sleep on queue %q is running", queue),
		Hint: "run one Sleep per queue and doorbell at a time"}
}
