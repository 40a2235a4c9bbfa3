package worker

import (
	"math"
	"slices"
	"sync/atomic"

	"github.com/posthaste-mq/posthaste"
)

// segment is what one claim handed out. Whoever advances next owns the items
// it passed, so that any goroutine of the pool can take the next message
// without a lock and a slow one delays only itself.
type segment struct {
	sub    *subscription
	worker posthaste.WorkerID
	items  []posthaste.RawDelivery
	next   atomic.Int64
	// mark is the item whose taking tells the fetcher that more is wanted.
	mark atomic.Int64
	open int // items not settled, guarded by holdings.mu
}

// link is a segment's place in the list. Who works on a segment holds it and not its
// link: a slow handler, or a goroutine that rests, would keep all that came after.
type link struct {
	*segment
	after atomic.Pointer[link]
}

func newSegment(sub *subscription, worker posthaste.WorkerID, items []posthaste.RawDelivery) *segment {
	s := &segment{sub: sub, worker: worker, items: items, open: len(items)}
	s.mark.Store(math.MaxInt64)
	return s
}

// subscription is one handler with what was prefetched for it.
type subscription struct {
	ref         posthaste.QueueRef
	handler     posthaste.Handler
	many        many // in place of handler, where a call gets several messages
	middleware  []func(posthaste.Handler) posthaste.Handler
	concurrency int
	batch       int64 // the most messages of one call
	sized       bool  // by BatchSize
	single      bool
	// once says that handing its messages out settles them.
	once atomic.Bool

	// head is the oldest segment that may have items left. The list begins
	// with a spent segment and is never empty.
	head atomic.Pointer[link]
	tail *link // guarded by holdings.mu
	// claimTook is how long the latest claim that found something took, in ns.
	claimTook atomic.Int64
	// wanted has a token when the fetcher should look at the capacity again.
	wanted chan struct{}
	// starved says that somebody found nothing to do since it was last reset.
	starved atomic.Bool
	// throttled says that the fetcher waits for outcomes to be settled.
	throttled atomic.Bool
	// full says that the fetcher sleeps, or is about to, because the queue's concurrency
	// is used up. A settle of this worker may free a place, and wakes it.
	full atomic.Bool
	// completed counts the messages whose outcome the acknowledger has got.
	completed atomic.Int64

	inOrder atomic.Bool
	lanes   int    // of the queue, noted before its fetcher runs
	order   *order // of an ordered queue; guarded by holdings.mu

	active int  // goroutines at work, guarded by pool.mu
	hungry bool // waits for one, guarded by pool.mu
}

// ready prepares s for a run.
func (s *subscription) ready() {
	s.tail = &link{segment: newSegment(s, 0, nil)}
	s.head.Store(s.tail)
	s.wanted = make(chan struct{}, 1)
}

// wrap puts middleware around the handler, the first one outermost.
func (s *subscription) wrap(middleware []func(posthaste.Handler) posthaste.Handler) {
	chain := func(h posthaste.Handler) posthaste.Handler {
		for _, around := range slices.Backward(middleware) {
			h = around(h)
		}
		return h
	}
	if len(middleware) == 0 {
		return
	}
	if s.handler != nil {
		s.handler = chain(s.handler)
	} else if b, ok := s.many.(interface {
		wrap(func(posthaste.Handler) posthaste.Handler)
	}); ok {
		b.wrap(chain)
	}
}

// append makes a segment available. It needs holdings.mu.
func (s *subscription) append(seg *segment) {
	l := &link{segment: seg}
	s.tail.after.Store(l)
	s.tail = l
}

// take takes up to limit items that follow each other. It returns nil if none
// is left.
func (s *subscription) take(limit int64) (seg *segment, low, high int64) {
	for {
		at := s.head.Load()
		seg = at.segment
		n := int64(len(seg.items))
		if seg.next.Load() < n {
			high = seg.next.Add(limit)
			low = high - limit
			if low < n {
				high = min(high, n)
				if mark := seg.mark.Load(); high > mark && seg.mark.CompareAndSwap(mark, math.MaxInt64) {
					s.want()
				}
				return seg, low, high
			}
		}
		after := at.after.Load()
		if after == nil {
			return nil, 0, 0
		}
		s.head.CompareAndSwap(at, after)
	}
}

// takeAll takes whatever is left, to drop it or to hand it back.
func (s *subscription) takeAll() (items []posthaste.RawDelivery, from []*segment) {
	for {
		seg, low, high := s.take(posthaste.MaxPlaces)
		if seg == nil {
			return items, from
		}
		for i := low; i < high; i++ {
			items, from = append(items, seg.items[i]), append(from, seg)
		}
	}
}

// left counts the items of seg that nobody took.
func (seg *segment) left() int64 { return max(0, int64(len(seg.items))-seg.next.Load()) }

// waiting reports whether an item is left.
func (s *subscription) waiting() bool {
	for seg := s.head.Load(); seg != nil; seg = seg.after.Load() {
		if seg.left() > 0 {
			return true
		}
	}
	return false
}

// buffered counts the items that are left.
func (s *subscription) buffered() (n int64) {
	for seg := s.head.Load(); seg != nil; seg = seg.after.Load() {
		n += seg.left()
	}
	return n
}

// markAt makes the fetcher be told when about n items more were taken.
func (s *subscription) markAt(n int64) {
	for seg := s.head.Load(); seg != nil; seg = seg.after.Load() {
		left := seg.left()
		if n <= left {
			seg.mark.Store(int64(len(seg.items)) - left + max(n, 1) - 1)
			return
		}
		n -= left
	}
}

// want tells the fetcher to look at the capacity again.
func (s *subscription) want() {
	select {
	case s.wanted <- struct{}{}:
	default:
	}
}
