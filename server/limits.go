package server

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Limits bound what callers may ask of a server. Zero values mean the default.
type Limits struct {
	// TokenRate is how many requests a second one token may make (default: any
	// number). Twice as many may come at once.
	TokenRate float64
	// AddressRate is the same for one remote address, or one /64 network of
	// IPv6, whatever the requests come with (default: any number). Addresses of
	// the machine itself are not limited: a proxy is one.
	AddressRate float64
	// MaxWaiting is how many receivers may wait for messages at the same time
	// (default 10,000). Who does not wait is always served.
	MaxWaiting int
}

func (l Limits) check() error {
	for _, c := range []struct {
		name  string
		value float64
	}{{"TokenRate", l.TokenRate}, {"AddressRate", l.AddressRate}, {"MaxWaiting", float64(l.MaxWaiting)}} {
		if !(c.value >= 0 && c.value <= 1e9) {
			return posthaste.Invalidf(c.name, "%s must be 0 to 1e9, and is %v", c.name, c.value)
		}
	}
	return nil
}

// bodyLimits bound requests' bodies by route; maxBody is for the largest
// payload there is, 32 MiB as base64. All others take smallBody. What a queue
// takes is the engine's to check.
const (
	maxBody        = 48 << 20
	deliveriesBody = 16 << 20
	smallBody      = 1 << 20
)

var bodyLimits = map[string]int64{
	"POST /v1/queues/{queue}/messages": maxBody, "POST /v1/emails": maxBody,
	"POST /v1/deliveries/ack": deliveriesBody, "POST /v1/deliveries/fail": deliveriesBody,
	"POST /v1/deliveries/release": deliveriesBody, "POST /v1/deliveries/extend": deliveriesBody,
}

// bodyLimit is how many bytes a request's body may have.
func bodyLimit(r *http.Request) int64 {
	if limit := bodyLimits[r.Pattern]; limit != 0 {
		return limit
	}
	return smallBody
}

func bodyTooLarge(limit int64) error {
	return &posthaste.Error{Code: posthaste.TooLarge, Message: fmt.Sprintf("the body is larger than %d MiB", limit>>20)}
}

// codeTooMany is told to who asks too often.
const codeTooMany posthaste.Code = "too_many_requests"

// maxBuckets bounds the memory of a limiter, to about 10 MB.
const maxBuckets = 100_000

// limiter is a token bucket for each of many keys, kept as one time: the one at
// which the bucket is full again. A bucket that is full is not kept at all, so
// that only who came lately takes memory; past maxBuckets of these at once all
// others share one bucket.
type limiter struct {
	interval time.Duration // between requests at the full rate
	burst    time.Duration // how far ahead a bucket may be
	most     int

	mu    sync.Mutex
	full  map[string]time.Time
	swept time.Time
}

// newLimiter makes a limiter, nil for any number of requests.
func newLimiter(perSecond float64) *limiter {
	if perSecond <= 0 {
		return nil
	}
	interval := time.Duration(float64(time.Second) / perSecond)
	return &limiter{interval: interval, burst: max(2*time.Second, interval), most: maxBuckets, full: map[string]time.Time{}}
}

// take takes one request out of a bucket, or tells how long it takes until there
// is one again.
func (l *limiter) take(key string, now time.Time) (wait time.Duration) {
	if l == nil {
		return 0
	}
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
		return ahead - l.burst
	}
	l.full[key] = full
	return 0
}

// sweep forgets buckets that are full, at most once a second: a flood from very
// many addresses must not pay for it each time.
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

func tooMany(whose string, wait time.Duration) error {
	return &httpError{status: http.StatusTooManyRequests, retryAfter: int((wait + time.Second - 1) / time.Second), err: &posthaste.Error{
		Code: codeTooMany, Message: "too many requests from this " + whose, Hint: "wait as long as Retry-After says, and send several messages in one request",
	}}
}

// remoteKey is the address that a request came from, as the limits know it; ""
// for this machine.
func remoteKey(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	addr = addr.Unmap().WithZone("")
	if addr.IsLoopback() {
		return ""
	}
	if addr.Is6() {
		return netip.PrefixFrom(addr, 64).Masked().String()
	}
	return addr.String()
}

func (s *Server) limitAddress(r *http.Request) error {
	if s.addresses == nil {
		return nil
	}
	key := remoteKey(r.RemoteAddr)
	if key == "" {
		return nil
	}
	if wait := s.addresses.take(key, time.Now()); wait > 0 {
		return tooMany("address", wait)
	}
	return nil
}

func (s *Server) limitToken(r *http.Request) error {
	t := callerOf(r)
	if t == nil {
		return nil
	}
	// By its hash: a name may have been another's before.
	if wait := s.callers.take(string(t.Hash[:]), time.Now()); wait > 0 {
		return tooMany("token", wait)
	}
	return nil
}

// places counts the receivers that wait.
type places struct {
	most  int64
	taken atomic.Int64
}

// enter takes a place, or says that there is none. Who entered leaves.
func (p *places) enter() error {
	if p.taken.Add(1) <= p.most {
		return nil
	}
	p.taken.Add(-1)
	return &posthaste.Error{Code: posthaste.Unavailable, Field: "wait", Message: fmt.Sprintf("%d receivers wait already, which is as many as this server takes", p.most),
		Hint: "try again, or ask without waiting"}
}

func (p *places) leave() { p.taken.Add(-1) }
