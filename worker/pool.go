package worker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// pool runs handlers on a bounded number of goroutines. A goroutine that starts and finds
// more messages than its own starts the next: handlers that wait spread over as many
// goroutines as allowed, and handlers that never wait stay on few. A goroutine continues
// while there is work, so that most messages start none.
type pool struct {
	limit   int
	report  *reporter
	tracing posthaste.Tracing
	held    *holdings
	lease   *lease
	outbox  *outbox
	teams   []*team

	// handlers is the parent of every handler's context. It is a field because goroutines of
	// the pool are started by others, whose contexts end earlier.
	handlers  context.Context
	interrupt context.CancelCauseFunc     // ends handlers
	stopping  atomic.Bool                 // the worker stops, so that no message starts
	hungry    atomic.Int32                // teams that have work and wait for a goroutine
	cancelled atomic.Pointer[deliverySet] // that the last heartbeat named; nil without any

	mu        sync.Mutex
	active    int
	abandoned int // handlers that overran and have not returned
	turnOf    int // index of the team at which the search for a hungry one starts
	slots     []*slot
	free      []*slot
	quiet     chan struct{} // closed and replaced when active drops to zero
}

// team is the part of the pool that works for one route.
type team struct {
	route   *route
	backlog *backlog
	active  int  // goroutines, guarded by pool.mu
	hungry  bool // it waits for a goroutine, guarded by pool.mu
}

// newPool returns a pool whose handlers get contexts derived from ctx.
func newPool(ctx context.Context, config *Config, routes []*route, held *holdings, lease *lease, outbox *outbox, report *reporter) *pool {
	p := &pool{limit: config.Concurrency, report: report, tracing: config.Tracing, held: held, lease: lease, outbox: outbox, quiet: make(chan struct{})}
	p.handlers, p.interrupt = context.WithCancelCause(ctx)
	for _, r := range routes {
		p.teams = append(p.teams, &team{route: r, backlog: held.backlog(r)})
	}
	return p
}

// paused reports whether no message may start.
func (p *pool) paused() bool { return p.stopping.Load() || p.lease.paused.Load() }

// start gives t one more goroutine if one is free.
func (p *pool) start(t *team) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.active >= t.route.concurrency || p.paused() {
		return
	}
	if p.active >= p.limit {
		if !t.hungry {
			t.hungry = true
			p.hungry.Add(1)
		}
		return
	}
	p.active++
	t.active++
	s := p.slot()
	s.team = t
	go p.work(s)
}

// slot returns a free slot. The caller holds p.mu.
func (p *pool) slot() *slot {
	if n := len(p.free); n > 0 {
		s := p.free[n-1]
		p.free = p.free[:n-1]
		return s
	}
	s := &slot{tray: p.outbox.tray()}
	p.slots = append(p.slots, s)
	return s
}

// room returns how many more goroutines t could get now. crowdedOut says that other teams
// have all goroutines and t has none, so that no end of a handler tells t of free room.
func (p *pool) room(t *team) (goroutines int, crowdedOut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, min(t.route.concurrency-t.active, p.limit-p.active)), t.active == 0 && p.active >= p.limit
}

// work handles messages until none is left.
func (p *pool) work(s *slot) {
	fresh := true
	for n := 1; ; n++ {
		next, ok := p.next(s)
		if !ok {
			if !p.rest(s) {
				return
			}
			fresh = true
			continue
		}
		if fresh {
			fresh = false
			if s.team.backlog.waiting() {
				p.start(s.team)
			}
		}
		took, ok := p.handle(s, next)
		if !ok {
			p.returned(s)
			return
		}
		// Between quick messages it is enough to check now and then whether another team
		// waits for a goroutine.
		if p.hungry.Load() > 0 && (n&15 == 0 || took > 100*time.Microsecond) {
			fresh = p.turn(s)
		}
	}
}

// next takes the messages of the next call.
func (p *pool) next(s *slot) (part, bool) {
	if p.paused() {
		return part{}, false
	}
	seg, low, high := s.team.backlog.take(s.team.route.batch)
	return part{seg, low, high}, seg != nil
}

// rest ends a goroutine's work for a team that has no messages left. It returns true if the
// goroutine continues for another team.
func (p *pool) rest(s *slot) bool {
	t := s.team
	t.route.starved.Store(true)
	p.mu.Lock()
	t.active--
	other := p.nextHungry()
	if other != nil {
		s.team = other
		other.active++
	} else {
		p.active--
		p.free = append(p.free, s)
		p.checkQuiet()
	}
	p.mu.Unlock()
	t.route.want()
	// Messages that were appended after the last take found this goroutine counted as
	// active, and may have started none.
	if t.backlog.waiting() {
		p.start(t)
	}
	return other != nil
}

// checkQuiet wakes wait if nothing is active. The caller holds p.mu.
func (p *pool) checkQuiet() {
	if p.active == 0 {
		close(p.quiet)
		p.quiet = make(chan struct{})
	}
}

// nextHungry picks the next team that waits for a goroutine, in turn. The caller holds p.mu.
func (p *pool) nextHungry() *team {
	if p.hungry.Load() == 0 || p.paused() {
		return nil
	}
	for range p.teams {
		p.turnOf = (p.turnOf + 1) % len(p.teams)
		t := p.teams[p.turnOf]
		if !t.hungry {
			continue
		}
		t.hungry = false
		p.hungry.Add(-1)
		if t.active < t.route.concurrency && t.backlog.waiting() {
			return t
		}
	}
	return nil
}

// turn passes a goroutine on to a team that waits for one. It returns false if none does.
func (p *pool) turn(s *slot) bool {
	p.mu.Lock()
	other, t := p.nextHungry(), s.team
	if other == nil || other == t {
		if other != nil { // it still waits for one more
			t.hungry = true
			p.hungry.Add(1)
		}
		p.mu.Unlock()
		return false
	}
	t.active--
	other.active++
	s.team = other
	p.mu.Unlock()
	t.route.want()
	if t.backlog.waiting() {
		p.start(t) // which makes it wait for its next turn
	}
	return true
}

// stop keeps messages from starting until resume.
func (p *pool) stop() { p.stopping.Store(true) }

func (p *pool) resume() {
	p.stopping.Store(false)
	p.wake()
}

// wake starts what could not start during a pause, unless there is another reason to pause.
func (p *pool) wake() {
	if p.paused() {
		return
	}
	for _, t := range p.teams {
		if t.backlog.waiting() {
			p.start(t)
		}
		t.route.want()
	}
}

// wait returns true once nothing runs and, unless paused, nothing waits to. It does not wait
// for handlers that overran their timeout.
func (p *pool) wait(ctx context.Context) bool {
	for {
		p.mu.Lock()
		active, quiet := p.active, p.quiet
		p.mu.Unlock()
		waiting := false
		for _, t := range p.teams {
			waiting = waiting || !p.paused() && t.backlog.waiting()
		}
		if active == 0 && !waiting {
			return true
		}
		select {
		case <-quiet:
		case <-ctx.Done():
			return false
		}
	}
}

// closing reports whether log lines of a handler that has returned are being stored.
func (p *pool) closing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.slots, func(s *slot) bool {
		r := s.current.Load()
		return r != nil && r.state.Load() == runClosing
	})
}

// returned gives back the slot of a goroutine that had been abandoned.
func (p *pool) returned(s *slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.abandoned--
	p.free = append(p.free, s)
}

// sweep abandons handlers that run for longer than overrun after their timeout.
func (p *pool) sweep(ctx context.Context, overrun time.Duration) {
	ticker := time.NewTicker(min(max(overrun/4, time.Millisecond), 500*time.Millisecond))
	defer ticker.Stop()
	var slots []*slot
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		p.mu.Lock()
		slots = append(slots[:0], p.slots...)
		p.mu.Unlock()
		for _, s := range slots {
			r := s.current.Load()
			if r != nil && r.deadline != 0 && now() > r.deadline+overrun && r.end(runAbandoned) {
				go p.abandon(r) // the retry policy of one must not hold up the others
			}
		}
	}
}

// abandon counts a run as failed and frees its place in the pool. It does not touch the
// run's slot, because the goroutine may continue with it at any time.
func (p *pool) abandon(r *run) {
	d := r.seg.items[r.low]
	took := now() - r.began
	own := &slot{tray: &tray{}}
	p.record(own, r, fmt.Errorf("the handler did not return within its timeout of %s, nor within %s after its context ended",
		r.deadline-r.began, took-(r.deadline-r.began)), took)
	p.outbox.put(own.tray.out)
	t := p.teamOf(r.seg.route)
	p.mu.Lock()
	t.active--
	p.active--
	p.abandoned++
	abandoned := p.abandoned
	p.checkQuiet()
	p.mu.Unlock()
	p.report.log.Error("a handler ignores the end of its context; the pool continues without it",
		slog.String("queue", t.route.ref.Queue), slog.Any("message", d.MessageID), slog.Any("delivery", d.ID),
		slog.Duration("running", took), slog.Int("abandoned", abandoned))
	if t.backlog.waiting() {
		p.start(t)
	}
	t.route.want()
}

// teamOf searches for a route's team.
func (p *pool) teamOf(r *route) *team {
	for _, t := range p.teams {
		if t.route == r {
			return t
		}
	}
	return nil
}
