package server

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// maxBuckets limits the memory of a limiter to about 10 MB.
const maxBuckets = 100_000

// limiter is a token bucket per key. A bucket is stored as one time: when it is full again.
// Full buckets are not stored, so only recent callers take memory. While there are
// maxBuckets others, all further keys share one bucket.
type limiter struct {
	interval time.Duration // between requests at the full rate
	burst    time.Duration // how far ahead a bucket may be
	most     int

	mu    sync.Mutex
	full  map[string]time.Time
	swept time.Time
}

// newLimiter returns a limiter, or nil if there is no limit.
func newLimiter(perSecond float64) *limiter {
	if perSecond <= 0 {
		return nil
	}
	interval := time.Duration(float64(time.Second) / perSecond)
	return &limiter{interval: interval, burst: max(2*time.Second, interval), most: maxBuckets, full: map[string]time.Time{}}
}

// take takes one request from a bucket and returns the time until the bucket is full again. If
// the bucket is empty, wait is the time until the next request is allowed.
func (l *limiter) take(key string, now time.Time) (wait, untilFull time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	full, known := l.full[key]
	if !known && len(l.full) >= l.most {
		l.sweep(now)
		if len(l.full) >= l.most {
			key = ""
			full = l.full[key]
		}
	}
	if full.Before(now) {
		full = now
	}
	full = full.Add(l.interval)
	if ahead := full.Sub(now); ahead > l.burst {
		return ahead - l.burst, ahead - l.interval
	}
	l.full[key] = full
	return 0, full.Sub(now)
}

// sweep removes full buckets, at most once a second, because a flood from very many
// addresses would otherwise pay for a sweep per request.
func (l *limiter) sweep(now time.Time) {
	if now.Sub(l.swept) < time.Second {
		return
	}
	l.swept = now
	for key, full := range l.full {
		if !full.After(now) {
			delete(l.full, key)
		}
	}
}

// waitLimit bounds the number of receivers that wait.
type waitLimit struct {
	most  int64
	taken atomic.Int64
}

// enter counts a receiver, or returns an error. Each successful call needs a call of leave.
func (l *waitLimit) enter() error {
	if l.taken.Add(1) <= l.most {
		return nil
	}
	l.taken.Add(-1)
	return &posthaste.Error{Code: posthaste.CodeUnavailable, Field: "wait", Message: fmt.Sprintf("%d receivers already wait, which is the limit of this server", l.most),
		Hint: "try again later, or receive without wait"}
}

func (l *waitLimit) leave() { l.taken.Add(-1) }
