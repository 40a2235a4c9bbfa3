package server

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// A bucket lets its burst through at once and then its rate, whatever came
// before, and is no other key's.
func TestLimiterKeepsTheRate(t *testing.T) {
	t.Parallel()
	l := newLimiter(10)
	now := time.Unix(1000, 0)
	passed := 0
	for range 100 {
		if wait, _ := l.take("a", now); wait == 0 {
			passed++
		}
	}
	if passed != 20 {
		t.Errorf("%d passed at once, want 20", passed)
	}
	if wait, _ := l.take("a", now); wait != 100*time.Millisecond {
		t.Errorf("told to wait %s, want 100 ms", wait)
	}
	if wait, _ := l.take("b", now); wait != 0 {
		t.Error("another key is limited, too")
	}
	for range 1000 { // 10 s at 100 a second
		now = now.Add(10 * time.Millisecond)
		if wait, _ := l.take("a", now); wait == 0 {
			passed++
		}
	}
	if passed < 119 || passed > 121 {
		t.Errorf("%d passed in 10 s, want 120", passed)
	}
	if newLimiter(0) != nil {
		t.Error("no limit limits")
	}
}

// However many keys come, memory is bounded, and full buckets make room.
func TestLimiterIsBounded(t *testing.T) {
	t.Parallel()
	l := newLimiter(10)
	l.most = 100
	now := time.Unix(1000, 0)
	limited := 0
	for i := range 10_000 {
		if wait, _ := l.take(strconv.Itoa(i), now); wait > 0 {
			limited++
		}
	}
	if len(l.full) > 101 || limited != 10_000-100-20 {
		t.Errorf("%d buckets, %d limited", len(l.full), limited)
	}
	now = now.Add(3 * time.Second)
	if wait, _ := l.take("new", now); wait != 0 || len(l.full) > 2 {
		t.Errorf("after a pause: %d buckets", len(l.full))
	}
}

func TestRemoteKey(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"127.0.0.1:1": "", "[::1]:1": "", "[::ffff:127.0.0.1]:1": "", "192.0.2.1:5": "192.0.2.1", "[::ffff:192.0.2.1]:5": "192.0.2.1",
		"[2001:db8:1:2:3::4]:5": "2001:db8:1:2::/64", "[fe80::1%eth0]:5": "fe80::/64", "@": "@",
	} {
		if got := remoteKey(remote); got != want {
			t.Errorf("%s is %q, want %q", remote, got, want)
		}
	}
}

func askFrom(s *Server, remote, token string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "http://127.0.0.1/v1/queues", nil)
	r.RemoteAddr = remote
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// One address that asks too often is told to wait; others and this machine's are
// not, and neither is one with a token spared.
func TestAddressesAreLimited(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		a := newAPI(t, withTokens(t), func(c *Config, _ *hooked) { c.Limits.AddressRate = 0.01 }) // one, and the next in 100 s
		if got := askFrom(a.server, "192.0.2.1:1", ""); got.Code != 401 {
			t.Fatalf("the first: %d", got.Code)
		}
		got := askFrom(a.server, "192.0.2.1:2", "admin-secret")
		reply{got.Code, got.Header(), got.Body.Bytes()}.wantProblem(t, 429, codeTooMany, "")
		if after, _ := strconv.Atoi(got.Header().Get("Retry-After")); after != 100 {
			t.Errorf("Retry-After: %q", got.Header().Get("Retry-After"))
		}
		if got := askFrom(a.server, "192.0.2.2:1", "admin-secret"); got.Code != 200 {
			t.Errorf("another address: %d", got.Code)
		}
		for range 10 {
			if got := askFrom(a.server, "127.0.0.1:1", "admin-secret"); got.Code != 200 {
				t.Fatalf("this machine: %d", got.Code)
			}
		}
	})
}

func TestTokensAreLimited(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		a := newAPI(t, withTokens(t), func(c *Config, _ *hooked) { c.Limits.TokenRate = 0.01 })
		a.queue("orders")
		a.as("admin-secret").call("GET", "/v1/queues", "").want(t, 200)
		got := a.as("admin-secret").call("GET", "/v1/queues", "")
		got.wantProblem(t, 429, codeTooMany, "")
		if got.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		a.as("send-secret").call("POST", "/v1/queues/orders/messages", `{"payload":1}`).want(t, 201)
		a.call("GET", "/healthz", "").want(t, 200)
	})
}

// Each user of a proxy has its own limit.
func TestUsersAreLimited(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		changed := 0
		a := newAPI(t, withPages(&changed), func(c *Config, _ *hooked) {
			c.Limits.TokenRate = 0.01
			c.Pages.Proxies, c.Pages.UserHeader, c.Pages.UserScopes = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, "X-User", []Scope{ScopeRead}
		})
		for _, user := range []string{"ada", "bob"} {
			a.browser().get("/pages/", "X-User", user).want(t, 200)
			a.browser().get("/pages/", "X-User", user).want(t, 429)
		}
	})
}

func TestLimitsAreChecked(t *testing.T) {
	t.Parallel()
	for _, bad := range []Limits{{TokenRate: -1}, {AddressRate: -1}, {MaxWaiting: -1}, {TokenRate: 1e10}} {
		if err := bad.check(); posthaste.CodeOf(err) != posthaste.CodeInvalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// The number of waiting receivers is limited; a receiver that does not wait is always served.
func TestWaitingReceiversAreLimited(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		a := newAPI(t, func(c *Config, _ *hooked) { c.Limits.MaxWaiting = 2 })
		a.queue("orders")
		first, second := a.receiveLater(t.Context(), `{"wait":"5m"}`), a.receiveLater(t.Context(), `{"wait":"5m"}`)
		eventually(t, "both wait", func() bool { return a.server.gatherer.waiting("orders") == 2 })
		got := a.call("POST", "/v1/queues/orders/receive", `{"wait":"5m"}`)
		got.wantProblem(t, 503, posthaste.CodeUnavailable, "wait")
		if got.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		a.call("POST", "/v1/queues/orders/receive", "").want(t, 200)
		a.sendSome(2)
		<-first
		<-second
		eventually(t, "their waits have ended", func() bool { return a.server.waiting.taken.Load() == 0 })
	})
}

// A body with a Content-Length above its route's limit is rejected before it is read, and one
// without a length once it exceeds the limit.
func TestBodiesAreLimitedByRoute(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.queue("orders")
	for path, limit := range map[string]int{"PUT /v1/queues/orders": smallBody, "POST /v1/dead-letters/replay": smallBody, "POST /v1/deliveries/ack": deliveriesBody} {
		method, path, _ := strings.Cut(path, " ")
		conn, err := a.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		// Only the header: the answer does not wait for a body.
		fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", method, path, limit+1)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || answer.StatusCode != 413 {
			t.Errorf("%s with %d bytes announced: %v %v", path, limit+1, answer, err)
		}
		conn.Close()
		if limit != smallBody {
			continue
		}
		r := a.request(t.Context(), method, path, "")
		var sent countingReader
		r.Body, r.ContentLength = io.NopCloser(&sent), -1
		r.Header.Set("Content-Type", "application/json")
		answer, err = a.client.Do(r)
		if err == nil {
			answer.Body.Close()
			if answer.StatusCode != 413 {
				t.Errorf("%s without end: %s", path, answer.Status)
			}
		}
		if sent.n.Load() > 64<<20 {
			t.Errorf("%s: %d bytes were taken", path, sent.n.Load())
		}
	}
}

// countingReader has spaces without end.
type countingReader struct{ n atomic.Int64 }

func (c *countingReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	c.n.Add(int64(len(p)))
	return len(p), nil
}
