package worker

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// instant is a moment from which a lease is counted.
type instant struct {
	at   time.Time
	wall int64 // in ns
}

// lease is the time for which the store counts the worker as alive. Once it is over, the
// messages that the worker holds may run elsewhere, and none starts here.
type lease struct {
	length  time.Duration
	wall    func(time.Time) int64
	report  *reporter
	renewed atomic.Pointer[instant] // when the last heartbeat that succeeded was sent; nil before the first
	paused  atomic.Bool             // the lease is over; changed under mu
	ended   chan struct{}           // has a token once the lease is over

	mu sync.Mutex
	// timer calls expire. It runs beside the heartbeats, because one that fails or hangs,
	// and the wait after it, must not delay it.
	timer *time.Timer
}

func newLease(length time.Duration, wall func(time.Time) int64, report *reporter) *lease {
	return &lease{length: length, wall: wall, report: report, ended: make(chan struct{}, 1)}
}

func (l *lease) now() instant {
	t := time.Now()
	return instant{t, l.wall(t)}
}

// left returns the rest of the lease, by the clock that shows less of it. Go's monotonic clock
// stands still while the machine is suspended. When the machine wakes, the kernel adds the
// same time to its wall clock as to CLOCK_BOOTTIME, which counts it, and the wall clock needs
// no further system call for each message. Setting the wall clock forward only causes a
// heartbeat.
func (l *lease) left() time.Duration {
	since, t := l.renewed.Load(), time.Now()
	return l.length - max(t.Sub(since.at), time.Duration(l.wall(t)-since.wall))
}

// renew notes that the store has renewed the lease at sent or later. It returns true if the
// lease was over.
func (l *lease) renew(sent instant) (resumed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed.Store(&sent)
	if l.timer == nil {
		l.timer = time.AfterFunc(l.left(), l.expire)
	} else {
		l.timer.Reset(l.left())
	}
	return l.paused.Swap(false)
}

// over reports whether the lease is over. It does not rely on the timer, because a process
// that was stopped, or whose machine was suspended, continues before its timers run. The
// pool asks before each handler starts.
func (l *lease) over() bool {
	if l.left() > 0 {
		return false
	}
	l.expire()
	return true
}

// expire keeps prefetched messages from starting: by now they may have been handed out to
// other workers.
func (l *lease) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.paused.Load() {
		return
	}
	if left := l.left(); left > 0 {
		l.timer.Reset(left) // a heartbeat succeeded since the timer fired, or the timer was early
		return
	}
	l.paused.Store(true)
	token(l.ended)
	l.report.log.Warn("no heartbeat succeeded for a whole lease; no message starts until one does", slog.Duration("lease", l.length))
}

// stop ends the timer.
func (l *lease) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer.Stop()
}
