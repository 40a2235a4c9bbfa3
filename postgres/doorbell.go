package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// The doorbell's times. Pauses between looks grow from first by half each time,
// so that a sender that was in flight for t is found at most about t/2 later.
const (
	firstLook = 4 * time.Millisecond
	// The design's 250 ms look with some air: what a sender that was in flight
	// commits must be taken within 300 ms, also on a busy machine.
	slowestLook = 200 * time.Millisecond
	// A process that sleeps by another one's keys asks for the keys now and
	// then, for that other process may be gone.
	firstAsk   = 8 * time.Millisecond
	slowestAsk = time.Second
	// askAgain is the pause after a passing send stood in the way.
	askAgain = 2 * time.Millisecond
	// goneLook is the pause between looks while there is no connection to
	// listen on.
	goneLook = time.Second
	// awakeDoze is how long a process that was woken keeps the doze key. Idle
	// queues are asleep again by then; under load senders should not notify.
	awakeDoze = 50 * time.Millisecond
	// awakeBell is how long it keeps the bell, if it slept for as long before: over
	// one find in calm traffic, which spares it letting go of the bell and asking
	// for it again.
	awakeBell = 5 * time.Millisecond
)

// armed is what the wake-up of a sleeping queue rests on: the words of
// posthaste.arm, gone, woken and limit.
type armed string

const (
	armedBell  armed = "bell"  // this process holds the bell: every send notifies
	armedHeard armed = "heard" // another process does
	armedDoze  armed = "doze"  // new sends notify, one in flight must be looked for
	armedDozed armed = "dozed" // the same, and another process looks
	armedAgain armed = "again" // nothing: ask again at once
	armedGone  armed = "gone"  // nothing: there is no connection to listen on
	armedWoken armed = "woken" // nothing: Wake was called meanwhile
	armedLimit armed = "limit" // nothing but listening: what waits waits for a limit, and who settles tells
)

// doorbell is the wake-up of one process: one connection that listens and
// holds the keys of all queues, and that never sends, because a session's own
// exclusive lock would not refuse its own shared one.
//
// The goroutine of line.go owns the connection and everything that is done on
// it; a Sleep hands it calls and is poked when something happened.
type doorbell struct {
	line

	mu       sync.Mutex
	sleepers map[string]*sleeper
	byID     map[int32]*sleeper
	closed   bool
}

// sleeper is one queue of the process. doorbell.mu guards all of it.
type sleeper struct {
	queue  string
	id     int32 // 0 until armed for the first time
	asleep bool  // a Sleep is running
	since  time.Time

	bell, doze bool // keys held by our session
	limit      bool // the last look found that what waits waits for a limit
	arming     *call

	// Why a Sleep must not go on waiting. poke has room for one token and only
	// says that one of them changed.
	rung, woken, changed bool
	poke                 chan struct{}

	// While the doze key is held: looks in a row that found something, the
	// pause before the next look, and the timer that lets go of the key.
	finds    int
	interval time.Duration
	letGo    *time.Timer
}

// Doorbell implements [posthaste.Engine]. It opens one connection beside the
// pool, which the doorbell keeps, and replaces when it is lost, until Close.
// While messages are sent to the process more often than about every 5 ms, over all its
// queues, it does not listen but looks every few milliseconds, because each send that
// notifies takes a lock on the whole database.
// With [WithPollingOnly] it opens no connection and looks in growing intervals.
func (e *Engine) Doorbell(ctx context.Context) (posthaste.Doorbell, error) {
	if e.polling {
		return newPollingBell(), nil
	}
	d, err := e.ringing(ctx)
	if err != nil {
		return nil, err
	}
	return e.pacer.Pace(d), nil
}

// ringing opens a doorbell that does not poll.
func (e *Engine) ringing(ctx context.Context) (*doorbell, error) {
	d := &doorbell{sleepers: make(map[string]*sleeper), byID: make(map[int32]*sleeper)}
	d.line = newLine(e.pool.Config(), e.log, d)
	conn, err := d.connect(ctx)
	if err != nil {
		return nil, readError(err)
	}
	go d.run(conn)
	return d, nil
}

// Sleep implements [posthaste.Doorbell]. It may call look several times: again
// after each pause while a sender that will not ring is still in flight.
func (d *doorbell) Sleep(ctx context.Context, queue string, look func(ctx context.Context) (posthaste.LookReply, error)) error {
	s, err := d.fallAsleep(queue)
	if err != nil {
		return err
	}
	defer func() { d.wakeUp(s, ctx.Err() != nil) }()
	var (
		due       time.Time
		before    armed
		beforeGen int
		ask       = firstAsk
	)
	for {
		state, gen, err := d.arm(ctx, s)
		if err != nil || state == armedWoken {
			return err
		}
		// Whoever sleeps by the same key as before has missed nothing.
		if state != before || gen != beforeGen || state == armedDoze || state == armedAgain || state == armedGone || state == armedLimit {
			d.drain(s)
			reply, err := look(ctx)
			if err != nil {
				return err
			}
			if d.looked(s, reply); reply.Found {
				return nil
			}
			if state == armedLimit && !reply.AtLimit {
				continue // now it is what is sent that counts
			}
			if reply.AtLimit && state != armedGone {
				state = armedLimit
			}
			if due = (time.Time{}); reply.NextDue >= 0 {
				due = time.Now().Add(reply.NextDue)
			}
		}
		before, beforeGen = state, gen
		woken, err := d.wait(ctx, s, d.pause(s, state, &ask), due)
		if woken || err != nil {
			return err
		}
	}
}

// fallAsleep begins a Sleep.
func (d *doorbell) fallAsleep(queue string) (*sleeper, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errDoorbellClosed()
	}
	s := d.sleepers[queue]
	if s == nil {
		s = &sleeper{queue: queue, poke: make(chan struct{}, 1)}
		d.sleepers[queue] = s
	}
	if s.asleep {
		return nil, errAsleepAlready(queue)
	}
	if s.letGo != nil {
		s.letGo.Stop()
		s.letGo = nil
	}
	s.asleep, s.since, s.rung, s.woken, s.changed = true, time.Now(), false, false, false
	return s, nil
}

// wakeUp ends a Sleep. Its caller goes on at once, and has the keys for a while
// longer: until they are let go of a few more sends notify, which costs them
// something and loses nothing.
// leaving says that this process will not look again, so that others that
// slept by its key must be told.
func (d *doorbell) wakeUp(s *sleeper, leaving bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.asleep = false
	if leaving {
		d.release(s, true)
		return
	}
	keep := awakeBell
	switch {
	case s.doze:
		keep = awakeDoze
	case !s.bell:
		return
	case !s.rung || time.Since(s.since) < awakeBell:
		// Woken by something else the bell may be that of a queue which was dropped,
		// and only asking for it anew tells; in dense traffic senders should not notify.
		d.releaseBell(s, false)
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(keep, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if s.letGo == timer && !s.asleep {
			d.release(s, false)
		}
	})
	s.letGo = timer
}

// arm makes sure that something wakes s, as far as that is possible now, and
// says what. gen tells connections apart: with a new one, old keys are gone.
func (d *doorbell) arm(ctx context.Context, s *sleeper) (state armed, gen int, err error) {
	d.mu.Lock()
	s.changed = false
	if d.closed || !d.up {
		gen = d.gen
		d.mu.Unlock()
		return armedGone, gen, ctx.Err()
	}
	if s.bell || s.limit && s.id != 0 {
		gen, state = d.gen, armedBell
		if !s.bell {
			state = armedLimit
		}
		d.mu.Unlock()
		return state, gen, ctx.Err()
	}
	// A call that an earlier Sleep did not wait for serves as well, for the
	// look comes after its answer. Two at once would lock twice.
	if s.arming == nil {
		s.arming = d.call(&call{s: s, arm: true, dozing: s.doze})
	}
	c := s.arming
	d.mu.Unlock()
	for {
		select {
		case <-c.done:
			return c.state, c.gen, c.err
		case <-ctx.Done():
			return armedGone, 0, ctx.Err()
		case <-s.poke:
			// A connection that does not answer must not hold up a Wake.
			d.mu.Lock()
			woken := s.woken
			d.mu.Unlock()
			if woken {
				return armedWoken, 0, nil
			}
		}
	}
}

// armedAs takes note of a call's answer, in the line's goroutine.
func (d *doorbell) armedAs(c *call, id int32, state armed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := c.s
	s.arming = nil
	c.gen = d.gen
	if s.id != id {
		// The queue was dropped, and another one has its name now.
		if s.doze {
			d.releaseDoze(s, false)
		}
		delete(d.byID, s.id)
		if c.dozing && state == armedDoze {
			state = armedAgain
		}
		s.id = id
	}
	d.byID[id] = s
	switch state {
	case armedBell, armedHeard: // with either every send notifies
		s.bell = state == armedBell
		if s.doze {
			d.releaseDoze(s, false)
		}
	case armedDoze:
		if !c.dozing {
			s.doze, s.finds, s.interval = true, 0, firstLook
		} else if !s.doze {
			state = armedAgain // let go of since the call was made
		}
	}
	c.state = state
	if !s.asleep { // the Sleep that asked has gone
		if s.bell {
			d.releaseBell(s, true)
		}
		if s.doze && !c.dozing {
			d.releaseDoze(s, true)
		}
	}
}

// release lets go of what keys are held.
func (d *doorbell) release(s *sleeper, leaving bool) {
	if s.bell {
		d.releaseBell(s, leaving)
	}
	if s.doze {
		d.releaseDoze(s, leaving)
	}
}

func (d *doorbell) releaseBell(s *sleeper, leaving bool) {
	s.bell = false
	d.call(&call{s: s, id: s.id, unlock: "bell", notify: leaving})
}

func (d *doorbell) releaseDoze(s *sleeper, leaving bool) {
	s.doze, s.finds, s.interval = false, 0, 0
	d.call(&call{s: s, id: s.id, unlock: "doze", notify: leaving})
}

// drain forgets the notifications that came before a look: the look sees what
// they announced, and each would cause an empty round afterwards.
func (d *doorbell) drain(s *sleeper) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.rung = false
}

// looked counts finds: one may be the message of the sender that was waited
// for, two in a row mean traffic, in which senders should not notify. Neither
// should they while what waits waits for a limit.
func (d *doorbell) looked(s *sleeper, reply posthaste.LookReply) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.limit = reply.AtLimit && !reply.Found
	switch {
	case s.limit:
		d.release(s, true) // others may sleep by its keys and wait for no limit
	case !s.doze:
	case !reply.Found:
		s.finds = 0
	case s.finds == 0:
		s.finds = 1
	default:
		d.releaseDoze(s, false)
	}
}

// pause says how long to wait before the next step; 0 means without end.
func (d *doorbell) pause(s *sleeper, state armed, ask *time.Duration) time.Duration {
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
		// The pause survives a wake-up: notifications must not restart it, or
		// a busy queue beside one long sender would look all the time.
		p := max(s.interval, firstLook)
		s.interval = min(p*3/2, slowestLook)
		return p
	}
	p := *ask
	*ask = min(p*2, slowestAsk)
	return jittered(p)
}

// wait waits until the bell rings, the due time comes or Wake is called
// (woken), or until there is reason to arm again.
func (d *doorbell) wait(ctx context.Context, s *sleeper, pause time.Duration, due time.Time) (woken bool, err error) {
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
		over, changed := s.rung || s.woken || d.closed, s.changed
		d.mu.Unlock()
		if over || changed {
			return over, ctx.Err()
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-alarm:
			return dueFirst, nil
		case <-s.poke:
		}
	}
}

// LetGo gives back the keys of a queue at once that a Sleep before has kept. The process
// polls from now on, and senders should not notify for its sake.
func (d *doorbell) LetGo(queue string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.sleepers[queue]; s != nil && !s.asleep {
		if s.letGo != nil {
			s.letGo.Stop()
			s.letGo = nil
		}
		d.release(s, false)
	}
}

// heard wakes the queue with that id, in the line's goroutine.
func (d *doorbell) heard(id int32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.byID[id]; s != nil {
		s.rung = true
		s.prod()
	}
}

// Wake implements [posthaste.Doorbell].
func (d *doorbell) Wake(queue string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.sleepers[queue]; s != nil && s.asleep {
		s.woken = true
		s.prod()
	}
}

// Close implements [posthaste.Doorbell]. It waits until the connection is
// closed, with which the keys are gone.
func (d *doorbell) Close() {
	d.mu.Lock()
	d.closed = true
	for _, s := range d.sleepers {
		s.prod()
		if s.letGo != nil {
			s.letGo.Stop()
		}
	}
	d.hangUp()
	d.mu.Unlock()
	<-d.ended
}

func (s *sleeper) prod() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

func jittered(d time.Duration) time.Duration {
	return d - rand.N(d/4+1)
}

func errDoorbellClosed() error {
	return &posthaste.Error{Code: posthaste.Refused, Message: "the doorbell is closed"}
}

func errAsleepAlready(queue string) error {
	return &posthaste.Error{Code: posthaste.Refused, Message: fmt.Sprintf("queue %q is slept on already by this doorbell", queue)}
}
