package server

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func zipped(t *testing.T, text string) string {
	t.Helper()
	var body bytes.Buffer
	w := gzip.NewWriter(&body)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return body.String()
}

// A body may be compressed with gzip. Its decompressed size is limited.
func TestCompressedBodies(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.queue("orders")
	send := func(path, body string) reply {
		t.Helper()
		r := a.request(t.Context(), "POST", path, body, "Content-Type", "application/json", "Content-Encoding", "gzip")
		answer, err := a.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		var got bytes.Buffer
		if _, err := got.ReadFrom(answer.Body); err != nil {
			t.Fatal(err)
		}
		return reply{answer.StatusCode, answer.Header, got.Bytes()}
	}
	const messages = "/v1/queues/orders/messages"
	sent := send(messages, zipped(t, `{"payload":{"a":"`+strings.Repeat("x", 1000)+`"}}`)).want(t, 201)
	var m wire.Message
	a.call("GET", sent.header.Get("Location"), "").want(t, 200).into(t, &m)
	if len(m.Payload) < 1000 {
		t.Errorf("it stored %s", m.Payload)
	}
	// A few kilobytes that become more than the limit. Their checksum is wrong, which only a
	// server that decompresses all of them would notice.
	bomb := zipped(t, `{"term":"`+strings.Repeat("x", 2*smallBody)+`"}`)
	bomb = bomb[:len(bomb)-8] + "12345678"
	if len(bomb) > 10_000 {
		t.Fatalf("%d bytes", len(bomb))
	}
	send("/v1/erase", bomb).wantProblem(t, 413, posthaste.CodeTooLarge, "")
	for what, body := range map[string]string{"cut": zipped(t, `{"payload":1}`)[:20], "with text behind": zipped(t, `{"payload":1}`) + "x", "empty": ""} {
		if got := send(messages, body); got.status != 400 {
			t.Errorf("%s: %d %s", what, got.status, got.body)
		}
	}
}

// A reschedule takes a time or a delay, of which exactly one must be given.
func TestRescheduleTakesADelay(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.queue("orders")
	sent := a.call("POST", "/v1/queues/orders/messages", `{"payload":1}`).want(t, 201)
	path := sent.header.Get("Location")
	a.call("POST", path+"/reschedule", `{"delay":"PT2H"}`).want(t, 200)
	var m wire.Message
	a.call("GET", path, "").want(t, 200).into(t, &m)
	if left := time.Until(m.Subscriptions[0].DueAt); left < 119*time.Minute || left > 2*time.Hour {
		t.Errorf("it is due in %s", left)
	}
	for _, body := range []string{`{}`, `{"delay":"1h","send_at":"2030-01-01T00:00:00Z"}`, `{"send_at":null}`} {
		a.call("POST", path+"/reschedule", body).wantProblem(t, 400, posthaste.CodeInvalid, "send_at")
	}
}

// If a rate is limited, each response shows the rest.
func TestRateLimitHeaders(t *testing.T) {
	t.Parallel()
	token, err := NewToken("t", "secret", ScopeAdmin)
	if err != nil {
		t.Fatal(err)
	}
	a := newAPI(t, func(c *Config, _ *hooked) { c.Tokens, c.Limits.TokenRate = []posthaste.Token{token}, 0.001 })
	a.token = "secret"
	first := a.call("GET", "/v1/queues", "").want(t, 200)
	second := a.call("GET", "/v1/queues", "").want(t, http.StatusTooManyRequests)
	for name, want := range map[string][2]string{"RateLimit-Limit": {"1", "1"}, "RateLimit-Remaining": {"0", "0"}, "RateLimit-Reset": {"1000", "1000"}} {
		if is := [2]string{first.header.Get(name), second.header.Get(name)}; is != want {
			t.Errorf("%s is %q, want %q", name, is, want)
		}
	}
	if second.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if h := newAPI(t).call("GET", "/v1/queues", "").header; h.Get("RateLimit-Limit") != "" {
		t.Error("RateLimit-Limit without a limit")
	}
}

// The page loads nothing from elsewhere, and no script but its own.
func TestDocsStandAlone(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for _, path := range []string{"/docs", "/docs/docs.css", "/docs/docs.js"} {
		got := a.call("GET", path, "").want(t, 200)
		policy := got.header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") {
			t.Errorf("%s has the policy %s", path, policy)
		}
		for _, outside := range []string{"http://", "https://", "innerHTML", "eval(", "<script>", "style="} {
			if bytes.Contains(got.body, []byte(outside)) {
				t.Errorf("%s has %s", path, outside)
			}
		}
	}
	a.call("GET", "/docs/docs.html", "").want(t, 404)
}
