package worker

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// prefetchBytes bounds the payloads of one claim, by their mean size so far, and those of the
// messages of an ordered queue that wait for others.
const prefetchBytes = 32 << 20

// segment is what one claim handed out. A goroutine takes items by advancing next: no lock
// is needed, and a slow handler delays only its own message.
type segment struct {
	route  *route
	worker posthaste.WorkerID
	items  []posthaste.RawDelivery
	next   atomic.Int64
	// mark is the index of the item whose taking tells the fetcher that more is wanted.
	mark atomic.Int64
	open int // unsettled items, guarded by holdings.mu
	// claimed is when the segment was made, by the clock of this machine, and by now.
	claimed     time.Time
	claimedThen time.Duration
}

func newSegment(route *route, worker posthaste.WorkerID, items []posthaste.RawDelivery) *segment {
	s := &segment{route: route, worker: worker, items: items, open: len(items), claimed: time.Now()}
	s.claimedThen = s.claimed.Sub(epoch)
	s.mark.Store(math.MaxInt64)
	return s
}

// waited returns the time from when a message was due to began, which is a result of now.
func (s *segment) waited(d *posthaste.RawDelivery, began time.Duration) time.Duration {
	due := d.DueAt
	if due.IsZero() {
		due = d.CreatedAt
	}
	return s.claimed.Sub(due) + began - s.claimedThen
}

// left counts the items that are not taken.
func (s *segment) left() int64 { return max(0, int64(len(s.items))-s.next.Load()) }

// link is a segment's node in the list. A goroutine that works on a segment holds the
// segment and not its link, because a link keeps all later segments from being freed.
type link struct {
	*segment
	after atomic.Pointer[link]
}

// backlog is the list of the segments that were prefetched for one route. All methods but
// append are safe for concurrent use.
type backlog struct {
	// head is the oldest segment that may have items left. The list begins with a spent
	// segment and is never empty.
	head atomic.Pointer[link]
	tail *link // guarded by holdings.mu
}

func newBacklog() *backlog {
	b := &backlog{tail: &link{segment: newSegment(nil, 0, nil)}}
	b.head.Store(b.tail)
	return b
}

// append makes a segment available. The caller holds holdings.mu.
func (b *backlog) append(seg *segment) {
	l := &link{segment: seg}
	b.tail.after.Store(l)
	b.tail = l
}

// take takes up to limit consecutive items: those of seg from low to before high. It returns
// a nil segment if none is left.
func (b *backlog) take(limit int64) (seg *segment, low, high int64) {
	for {
		at := b.head.Load()
		seg = at.segment
		n := int64(len(seg.items))
		if seg.next.Load() < n {
			high = seg.next.Add(limit)
			low = high - limit
			if low < n {
				high = min(high, n)
				if mark := seg.mark.Load(); high > mark && seg.mark.CompareAndSwap(mark, math.MaxInt64) {
					seg.route.want()
				}
				return seg, low, high
			}
		}
		after := at.after.Load()
		if after == nil {
			return nil, 0, 0
		}
		b.head.CompareAndSwap(at, after)
	}
}

// takeAll takes all items that are left, to drop or release them. from has the segment of
// each item.
func (b *backlog) takeAll() (items []posthaste.RawDelivery, from []*segment) {
	for {
		seg, low, high := b.take(posthaste.MaxPlaces)
		if seg == nil {
			return items, from
		}
		for i := low; i < high; i++ {
			items, from = append(items, seg.items[i]), append(from, seg)
		}
	}
}

// waiting reports whether an item is left.
func (b *backlog) waiting() bool {
	for l := b.head.Load(); l != nil; l = l.after.Load() {
		if l.left() > 0 {
			return true
		}
	}
	return false
}

// buffered counts the items that are left.
func (b *backlog) buffered() (n int64) {
	for l := b.head.Load(); l != nil; l = l.after.Load() {
		n += l.left()
	}
	return n
}

// markAt sets the mark so that the fetcher is told when about n more items were taken.
func (b *backlog) markAt(n int64) {
	for l := b.head.Load(); l != nil; l = l.after.Load() {
		left := l.left()
		if n <= left {
			l.mark.Store(int64(len(l.items)) - left + max(n, 1) - 1)
			return
		}
		n -= left
	}
}
