package worker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// pool runs handlers on a bounded number of goroutines. One that starts and
// finds more to do starts the next: handlers that wait spread over as many
// goroutines as allowed, and handlers that never wait stay on few. A goroutine
// goes on for as long as there is work, so that most messages start none.
type pool struct {
	rt    *runtime
	limit int
	// held, if not zero, is why nothing new may start.
	held atomic.Int32
	// hungry counts subscriptions that have work but no goroutine to give.
	hungry atomic.Int32

	mu        sync.Mutex
	active    int
	abandoned int // handlers that overran and have not returned
	turnOf    int // where the search for a hungry subscription starts
	slots     []*slot
	free      []*slot
	quiet     chan struct{} // closed and renewed when active drops to zero
}

// slot is what one goroutine of the pool works with.
type slot struct {
	pool    *pool
	sub     *subscription
	current atomic.Pointer[run]
	mu      sync.Mutex
	out     []outcome // for the acknowledger to collect
	runs    []run     // a supply, so that not every message allocates
	// keyed are outcomes of ordered keys, for the acknowledger in the order in which
	// they came about: what it takes from one slot before another would not be.
	keyed []outcome
	ends  []end     // messages of ordered keys that are done, for advance
	back  []outcome // what waited behind those that are not, for advance
}

// end says that a message of an ordered key is done.
type end struct {
	seg *segment
	key string
}

func newPool(rt *runtime, limit int) *pool {
	return &pool{rt: rt, limit: limit, quiet: make(chan struct{})}
}

// start gives sub one more goroutine if there is one to give.
func (p *pool) start(sub *subscription) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if sub.active >= sub.concurrency || p.held.Load() != 0 {
		return
	}
	if p.active >= p.limit {
		if !sub.hungry {
			sub.hungry = true
			p.hungry.Add(1)
		}
		return
	}
	p.active++
	sub.active++
	s := p.slot()
	s.sub = sub
	go p.work(s)
}

func (p *pool) slot() *slot {
	if n := len(p.free); n > 0 {
		s := p.free[n-1]
		p.free = p.free[:n-1]
		return s
	}
	s := &slot{pool: p}
	p.slots = append(p.slots, s)
	return s
}

// all returns every slot that may have outcomes.
func (p *pool) all(into []*slot) []*slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append(into[:0], p.slots...)
}

// room says how many more goroutines sub could get now, and whether it is crowded
// out: others have all of them and it has none, so that nothing tells when there is
// room for it.
func (p *pool) room(sub *subscription) (goroutines int, crowdedOut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, min(sub.concurrency-sub.active, p.limit-p.active)), sub.active == 0 && p.active >= p.limit
}

// work handles messages until none is left.
func (p *pool) work(s *slot) {
	fresh := true
	for n := 1; ; n++ {
		seg, low, high := s.next()
		if seg == nil {
			if !p.rest(s) {
				return
			}
			fresh = true
			continue
		}
		if fresh {
			fresh = false
			if s.sub.waiting() {
				p.start(s.sub)
			}
		}
		took, ok := s.handle(seg, low, high)
		if !ok {
			p.returned(s)
			return
		}
		// Between quick messages it is enough to look now and then whether
		// another subscription waits for a goroutine.
		if p.hungry.Load() > 0 && (n&15 == 0 || took > 100*time.Microsecond) {
			fresh = p.turn(s)
		}
	}
}

func (s *slot) next() (*segment, int64, int64) {
	if s.pool.held.Load() != 0 {
		return nil, 0, 0
	}
	return s.sub.take(s.sub.batch)
}

// rest ends a goroutine's work for a subscription that has none left. True
// means that it goes on with another.
func (p *pool) rest(s *slot) bool {
	sub := s.sub
	sub.starved.Store(true)
	p.mu.Lock()
	sub.active--
	other := p.nextHungry()
	if other != nil {
		s.sub = other
		other.active++
	} else {
		p.active--
		p.release(s)
	}
	p.mu.Unlock()
	sub.want()
	// What was appended since the last look found this goroutine counted as
	// active, and may have started none.
	if sub.waiting() {
		p.start(sub)
	}
	return other != nil
}

// release needs p.mu.
func (p *pool) release(s *slot) {
	p.free = append(p.free, s)
	p.checkQuiet()
}

func (p *pool) checkQuiet() {
	if p.active == 0 {
		close(p.quiet)
		p.quiet = make(chan struct{})
	}
}

// nextHungry picks the next subscription that waits for a goroutine, in turn.
// It needs p.mu.
func (p *pool) nextHungry() *subscription {
	if p.hungry.Load() == 0 || p.held.Load() != 0 {
		return nil
	}
	subs := p.rt.subs
	for range subs {
		p.turnOf = (p.turnOf + 1) % len(subs)
		sub := subs[p.turnOf]
		if !sub.hungry {
			continue
		}
		sub.hungry = false
		p.hungry.Add(-1)
		if sub.active < sub.concurrency && sub.waiting() {
			return sub
		}
	}
	return nil
}

// turn passes a goroutine on to a subscription that waits for one.
func (p *pool) turn(s *slot) bool {
	p.mu.Lock()
	other, sub := p.nextHungry(), s.sub
	if other == nil || other == sub {
		if other != nil { // it still wants another one
			sub.hungry = true
			p.hungry.Add(1)
		}
		p.mu.Unlock()
		return false
	}
	sub.active--
	other.active++
	s.sub = other
	p.mu.Unlock()
	sub.want()
	if sub.waiting() {
		p.start(sub) // which makes it wait for its next turn
	}
	return true
}

// hold keeps anything new from starting; resume undoes one hold.
func (p *pool) hold() { p.held.Add(1) }

func (p *pool) resume() {
	if p.held.Add(-1) == 0 {
		for _, sub := range p.rt.subs {
			if sub.waiting() {
				p.start(sub)
			}
			sub.want()
		}
	}
}

// wait returns true once nothing runs and, unless held, nothing waits to.
// Handlers that overran their timeout are not waited for.
func (p *pool) wait(ctx context.Context) bool {
	for {
		p.mu.Lock()
		active, quiet := p.active, p.quiet
		p.mu.Unlock()
		waiting := false
		for _, sub := range p.rt.subs {
			waiting = waiting || p.held.Load() == 0 && sub.waiting()
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

// handle runs one message, or one call for many. False means that the run
// was abandoned meanwhile and this goroutine has no place in the pool any more.
func (s *slot) handle(seg *segment, low, high int64) (took time.Duration, ok bool) {
	if len(s.runs) == 0 {
		s.runs = make([]run, 32)
	}
	r := &s.runs[0]
	s.runs = s.runs[1:]
	items := seg.items[low:high:high]
	if seg.sub.many != nil {
		r.call = &call{}
		items, r.call.more = s.gather(items, seg.sub.batch-(high-low))
	}
	r.parent, r.seg, r.low, r.hi, r.began = s.pool.rt.handling, seg, low, high, now()
	for i := range items {
		if t := items[i].Timeout; t > 0 && (r.deadline == 0 || r.began+t < r.deadline) {
			r.deadline = r.began + t
		}
	}
	if tracing := s.pool.rt.config.Tracing; tracing != nil {
		r.parent, r.traces = tracing.Handling(r.parent, items)
	}
	if r.idle = !s.mayStart(r); r.idle {
		r.end(runReturned)
		s.record(r, errNotStarted, 0)
		return 0, true
	}
	s.current.Store(r)
	exited := func(err error) {
		if r.end(runReturned) {
			s.record(r, err, now()-r.began)
			s.pool.replace(s)
		} else {
			s.pool.returned(s)
		}
	}
	if seg.sub.many != nil {
		results := deliver(seg.sub.many, r, items, exited)
		took = now() - r.began
		if ok = r.end(runReturned); ok {
			s.recordResults(r, results, took)
		}
		return took, ok
	}
	err := s.call(seg.sub.handler, r, &items[0], exited)
	took = now() - r.began
	if ok = r.end(runReturned); ok {
		s.record(r, err, took)
	}
	return took, ok
}

func (s *slot) call(handler posthaste.Handler, r *run, d *posthaste.RawDelivery, exited func(error)) error {
	return protect(func() error { return handler(r, *d) }, exited)
}

// gather takes up to n more, of segments that follow, so that what came in
// many small claims is handled in few calls.
func (s *slot) gather(items []posthaste.RawDelivery, n int64) (all []posthaste.RawDelivery, more []part) {
	for n > 0 {
		seg, low, high := s.sub.take(n)
		if seg == nil {
			break
		}
		items = append(items, seg.items[low:high]...) // a copy, for its capacity ends
		more = append(more, part{seg, low, high})
		n -= high - low
	}
	return items, more
}

// record keeps one outcome for all deliveries of a run.
func (s *slot) record(r *run, err error, took time.Duration) {
	s.put(r, took, func(int) posthaste.SinkResult { return posthaste.SinkResult{Err: err} })
}

func (s *slot) recordResults(r *run, results []posthaste.SinkResult, took time.Duration) {
	s.put(r, took, func(i int) posthaste.SinkResult { return results[i] })
}

func (s *slot) put(r *run, took time.Duration, result func(i int) posthaste.SinkResult) {
	for i, trace := range r.traces {
		if trace != nil {
			err := r.answer(i, result).Err
			if r.idle {
				err = posthaste.Snooze(0)
			}
			trace.Handled(err)
		}
	}
	var told *batch
	if r.call != nil && !s.pool.rt.quiet && !r.idle {
		told = &batch{sub: r.seg.sub, claim: time.Duration(r.seg.sub.claimTook.Load()), took: took, ended: now()}
	}
	s.mu.Lock()
	n := s.putPart(r, part{r.seg, r.low, r.hi}, 0, took, result, told)
	if r.call != nil {
		for _, p := range r.call.more {
			n = s.putPart(r, p, n, took, result, told)
		}
	}
	if told != nil {
		told.count = n
	}
	s.mu.Unlock()
	if len(s.keyed) > 0 {
		s.advance()
	}
	s.pool.rt.acks.ring()
}

// advance hands over the outcomes of ordered keys and lets the next messages follow
// those that ended. A next one may run before the one before it is on record, but
// its outcome comes after that one's, so that no crash loses the first of two and
// keeps the second.
func (s *slot) advance() {
	rt := s.pool.rt
	rt.acks.put(s.keyed)
	clear(s.keyed)
	s.keyed = s.keyed[:0]
	for _, e := range s.ends {
		rt.held.ended(e.seg, e.key)
	}
	clear(s.ends)
	s.ends = s.ends[:0]
	if len(s.back) > 0 {
		rt.acks.put(s.back)
		s.back = nil
	}
}

// putPart keeps the outcomes of a part that begins with the run's n-th message,
// and returns the number of the next part's first.
func (s *slot) putPart(r *run, p part, n int, took time.Duration, result func(i int) posthaste.SinkResult, told *batch) int {
	stopped := s.pool.rt.handling.Err() != nil
	for i := p.low; i < p.high; i++ {
		d := &p.seg.items[i]
		answer := r.answer(n, result)
		o := judge(d, p.seg, answer.Err, took)
		if r.traces != nil {
			o.trace = r.traces[n]
		}
		n++
		if o.cause != nil && stopped && o.Outcome != posthaste.Released && !o.once {
			continue // interrupted, not failed: it runs again elsewhere
		}
		o.Receipt, o.Terms = answer.Receipt, answer.Terms
		if o.batch = told; told != nil {
			told.left++
		}
		if p.seg.sub.inOrder.Load() && d.Key != "" {
			o.key = d.Key
			if o.Outcome == posthaste.Done {
				s.ends = append(s.ends, end{p.seg, d.Key})
			} else {
				// Before this is on record, for its answer opens the key again.
				o.closes = true
				s.back = append(s.back, s.pool.rt.held.unfinished(p.seg, d.Key)...)
			}
			s.keyed = append(s.keyed, o)
		} else {
			s.out = append(s.out, o)
		}
		// The segment stays until its last message is settled; what is heavy
		// about this one need not. An abandoned sink may still read it.
		if r.state.Load() == runReturned {
			d.Payload, d.Headers, d.Story = nil, nil, nil
		}
	}
	return n
}

// returned gives back the slot of a goroutine that had been abandoned.
func (p *pool) returned(s *slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.abandoned--
	p.free = append(p.free, s)
}

// replace starts another goroutine for one that a handler ended.
func (p *pool) replace(s *slot) { go p.work(s) }

// sweep abandons handlers that went on for too long after their timeout.
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
		slots = p.all(slots)
		for _, s := range slots {
			r := s.current.Load()
			if r != nil && r.deadline != 0 && now() > r.deadline+overrun && r.end(runAbandoned) {
				p.abandon(r)
			}
		}
	}
}

// abandon counts a run as failed and gives its place to another. The slot is its
// goroutine's, which may go on with it at any time.
func (p *pool) abandon(r *run) {
	d := r.seg.items[r.low]
	took := now() - r.began
	own := &slot{pool: p}
	own.record(r, fmt.Errorf("the handler did not return within its timeout of %s, nor %s after its context ended",
		r.deadline-r.began, took-(r.deadline-r.began)), took)
	p.rt.acks.put(own.out)
	p.mu.Lock()
	r.seg.sub.active--
	p.active--
	p.abandoned++
	abandoned := p.abandoned
	p.checkQuiet()
	p.mu.Unlock()
	p.rt.log.Error("a handler ignores the end of its context; its place in the pool was given to another",
		slog.String("queue", r.seg.sub.ref.Queue), slog.Any("message", d.MessageID), slog.Any("delivery", d.ID),
		slog.Duration("running", took), slog.Int("abandoned", abandoned))
	if r.seg.sub.waiting() {
		p.start(r.seg.sub)
	}
	r.seg.sub.want()
}
