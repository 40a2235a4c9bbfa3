package server

import (
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Limits bounds the requests of callers. Zero values mean the defaults.
type Limits struct {
	// TokenRate is the number of requests per second for one token, with bursts of twice as
	// many. The default is no limit.
	TokenRate float64
	// AddressRate is the number of requests per second for one remote address, or one /64
	// network of IPv6, with bursts of twice as many. It counts requests with and without a
	// token. Loopback addresses are not limited, because a local proxy has one. The default
	// is no limit.
	AddressRate float64
	// MaxWaiting is the number of receivers that may wait for messages at the same time; the
	// default is 10,000. Receivers that do not wait are not limited.
	MaxWaiting int
}

func (l Limits) check() error {
	for _, c := range []struct {
		name  string
		value float64
	}{{"TokenRate", l.TokenRate}, {"AddressRate", l.AddressRate}, {"MaxWaiting", float64(l.MaxWaiting)}} {
		if !(c.value >= 0 && c.value <= 1e9) {
			return posthaste.Invalidf(c.name, "%s must be 0 to 1e9, got %v", c.name, c.value)
		}
	}
	return nil
}

func tooMany(source string, wait time.Duration) error {
	return &httpError{status: http.StatusTooManyRequests, retryAfter: wholeSeconds(wait), err: &posthaste.Error{
		Code: codeTooMany, Message: "too many requests from this " + source, Hint: "wait for the time in Retry-After, and send several messages per request",
	}}
}

// remoteKey is the remote address as the limits count it; "" for loopback addresses.
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

func (s *Server) limitAddress(w http.ResponseWriter, r *http.Request) error {
	if s.addresses == nil {
		return nil
	}
	key := remoteKey(r.RemoteAddr)
	if key == "" {
		return nil
	}
	return limit(w, s.addresses, "address", key)
}

func (s *Server) limitToken(w http.ResponseWriter, t *posthaste.Token) error {
	if t == nil || s.callers == nil {
		return nil
	}
	// The key is the hash, because a name may have belonged to another token before. Users of a
	// proxy have no token.
	key := string(t.Hash[:])
	if t.Hash == (posthaste.Token{}).Hash {
		key = "user " + t.Name
	}
	return limit(w, s.callers, "token", key)
}

// limit takes one request from a bucket and describes the bucket in the headers RateLimit-*.
// Of two limits they describe the one that allows fewer requests.
func limit(w http.ResponseWriter, l *limiter, source, key string) error {
	wait, full := l.take(key, time.Now())
	left := int64((l.burst - full) / l.interval)
	if wait > 0 {
		left = 0
	}
	h := w.Header()
	if before, err := strconv.ParseInt(h.Get("RateLimit-Remaining"), 10, 64); err != nil || left < before {
		h.Set("RateLimit-Limit", strconv.FormatInt(int64(l.burst/l.interval), 10))
		h.Set("RateLimit-Remaining", strconv.FormatInt(left, 10))
		h.Set("RateLimit-Reset", strconv.Itoa(wholeSeconds(full)))
	}
	if wait > 0 {
		return tooMany(source, wait)
	}
	return nil
}

func wholeSeconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }
