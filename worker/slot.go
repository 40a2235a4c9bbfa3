package worker

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// slot is what one goroutine of the pool works with.
type slot struct {
	team    *team
	current atomic.Pointer[run]
	tray    *tray
	runs    []run     // a supply, so that not every message allocates one
	judged  []outcome // of the present run, on their way to the tray
	// keyed has outcomes of ordered keys in the order in which they came about. They do not
	// go through the tray, because trays are collected one after the other.
	keyed []outcome
	ends  []end     // messages of ordered keys that are done, for advance
	back  []outcome // releases of the messages behind those that are not, for advance
}

// end says that a message of an ordered key is done.
type end struct {
	seg *segment
	key string
}

// handle runs the call of one message, or of several. It returns false if the run was
// abandoned meanwhile, so that this goroutine has no place in the pool any more.
func (p *pool) handle(s *slot, first part) (took time.Duration, ok bool) {
	if len(s.runs) == 0 {
		s.runs = make([]run, 32)
	}
	r := &s.runs[0]
	s.runs = s.runs[1:]
	route, items := first.seg.route, first.items()
	if route.many != nil {
		r.call = &call{}
		items, r.call.more = s.gather(items, route.batch-int64(len(items)))
	}
	r.parent, r.part, r.began = p.handlers, first, now()
	for i := range items {
		if t := items[i].Timeout; t > 0 && (r.deadline == 0 || r.began+t < r.deadline) {
			r.deadline = r.began + t
		}
		items[i].SetNotebook(r)
	}
	if p.tracing != nil {
		r.parent, r.traces = p.tracing.Handling(r.parent, items)
	}
	if r.idle = !p.mayStart(r); r.idle {
		r.end(runReturned)
		p.record(s, r, errNotStarted, 0)
		return 0, true
	}
	s.current.Store(r)
	if p.wasCancelled(r) {
		if ok = r.end(runReturned); ok {
			r.idle = true
			p.record(s, r, errNotStarted, 0)
		}
		return 0, ok
	}
	exited := func(err error) {
		if took := now() - r.began; r.finish() {
			p.record(s, r, err, took)
			go p.work(s) // in place of this goroutine, which the handler ends
		} else {
			p.returned(s)
		}
	}
	if route.many != nil {
		results := deliver(r, route.many, r.call.answer, items, exited)
		took = now() - r.began
		if ok = r.finish(); ok {
			p.put(s, r, took, func(i int) posthaste.SinkResult { return results[i] })
		}
		return took, ok
	}
	err := protect(func() error { return route.handler(r, items[0]) }, exited)
	took = now() - r.began
	if ok = r.finish(); ok {
		p.record(s, r, err, took)
	}
	return took, ok
}

// gather takes up to n more messages, of later segments, so that the messages of many small
// claims are handled in few calls.
func (s *slot) gather(items []posthaste.RawDelivery, n int64) (all []posthaste.RawDelivery, more []part) {
	for n > 0 {
		seg, low, high := s.team.backlog.take(n)
		if seg == nil {
			break
		}
		items = append(items, seg.items[low:high]...) // a copy, because items has no capacity left
		more = append(more, part{seg, low, high})
		n -= high - low
	}
	return items, more
}

// mayStart reports whether the run's messages still belong to this worker: the lease is not
// over, and they were claimed under the current registration. Messages of at-most-once
// queues always do, because no other worker gets them.
func (p *pool) mayStart(r *run) bool {
	if r.seg.route.once.Load() {
		return true
	}
	if p.lease.over() || !p.held.lives(r.seg) {
		return false
	}
	if r.call != nil {
		for _, more := range r.call.more {
			if !p.held.lives(more.seg) {
				return false
			}
		}
	}
	return true
}

// record puts one outcome for all messages of a run.
func (p *pool) record(s *slot, r *run, err error, took time.Duration) {
	p.put(s, r, took, func(int) posthaste.SinkResult { return posthaste.SinkResult{Err: err} })
}

// put puts the outcomes of a run into the slot's tray, or hands them over in order for the
// messages of ordered keys.
func (p *pool) put(s *slot, r *run, took time.Duration, result func(i int) posthaste.SinkResult) {
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
	if r.call != nil && !p.report.quiet() && !r.idle {
		route := r.seg.route
		told = &batch{route: route, claim: time.Duration(route.claimTook.Load()), took: took, ended: now()}
	}
	// Not under the tray's lock: a retry policy or an error of the program may block, or end the
	// goroutine.
	n := p.putPart(s, r, r.part, 0, took, result, told)
	if r.call != nil {
		for _, more := range r.call.more {
			n = p.putPart(s, r, more, n, took, result, told)
		}
	}
	if told != nil {
		told.count = n
	}
	s.tray.mu.Lock()
	s.tray.out = append(s.tray.out, s.judged...)
	s.tray.mu.Unlock()
	clear(s.judged)
	s.judged = s.judged[:0]
	if len(s.keyed) > 0 {
		p.advance(s)
	}
	p.outbox.ring()
}

// putPart judges the messages of a part that begins with the run's n-th message. It returns
// the number of the message after the part.
func (p *pool) putPart(s *slot, r *run, from part, n int, took time.Duration, result func(i int) posthaste.SinkResult, told *batch) int {
	stopped := p.handlers.Err() != nil
	for i := from.low; i < from.high; i++ {
		d := &from.seg.items[i]
		answer := r.answer(n, result)
		o := judge(d, from.seg, answer.Err, took)
		o.wait = from.seg.waited(d, r.began)
		if r.traces != nil {
			o.trace = r.traces[n]
		}
		n++
		if o.cause != nil && stopped && o.Outcome != posthaste.OutcomeReleased && !o.once {
			// Interrupted, not failed: another worker gets it, as the same attempt.
			o.Outcome, o.Error, o.RetryAfter = posthaste.OutcomeReleased, "", 0
		}
		if o.Outcome == posthaste.OutcomeRetried && errors.Is(answer.Err, context.Canceled) && r.Cancelled(d.ID) {
			o.Error = cancelledText(answer.Err)
		}
		o.Receipt, o.Terms = answer.Receipt, answer.Terms
		if o.Receipt == nil && o.Outcome == posthaste.OutcomeDone {
			o.Receipt = r.result(d.ID)
		}
		if o.batch = told; told != nil {
			told.left++
		}
		if d.Key != "" && from.seg.route.inOrder.Load() {
			p.putInOrder(s, &o, d.Key)
		} else {
			s.judged = append(s.judged, o)
		}
		// The segment stays in memory until its last message is settled; the large fields of
		// this message need not. A sink that was abandoned may still read them.
		if r.state.Load() == runReturned {
			d.Payload, d.Headers, d.Story = nil, nil, nil
			d.SetNotebook(nil)
		}
	}
	return n
}

// putInOrder puts the outcome of a message of an ordered key, for advance.
func (p *pool) putInOrder(s *slot, o *outcome, key string) {
	o.key = key
	if o.Outcome == posthaste.OutcomeDone {
		s.ends = append(s.ends, end{o.seg, key})
	} else {
		// Before o is on record, because the answer to that opens the key again.
		o.closes = true
		s.back = append(s.back, p.held.unfinished(o.seg, key)...)
	}
	s.keyed = append(s.keyed, *o)
}

// advance hands over the outcomes of ordered keys and makes the next messages of those keys
// available. A message may start before the outcome of the one before it is on record, but
// its own outcome is recorded after that one, so that no crash loses the outcome of the
// first and keeps that of the second.
func (p *pool) advance(s *slot) {
	p.outbox.put(s.keyed)
	clear(s.keyed)
	s.keyed = s.keyed[:0]
	for _, e := range s.ends {
		p.held.ended(e.seg, e.key)
	}
	clear(s.ends)
	s.ends = s.ends[:0]
	if len(s.back) > 0 {
		p.outbox.put(s.back)
		s.back = nil
	}
}
