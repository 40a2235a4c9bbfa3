package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/memory"
	"github.com/posthaste-mq/posthaste/server"
)

const secret = "S3cret-token"

// serve offers a store over HTTP behind a proxy, which may be nil, to the token with a scope.
func serve(t *testing.T, store posthaste.Store, scope posthaste.Scope, proxy func(http.Handler) http.Handler) *Store {
	t.Helper()
	token, err := server.NewToken("ops", secret, scope)
	if err != nil {
		t.Fatal(err)
	}
	api, err := server.New(server.Config{Engine: store, Tokens: []posthaste.Token{token}})
	if err != nil {
		t.Fatal(err)
	}
	var handler http.Handler = api
	if proxy != nil {
		handler = proxy(api)
	}
	return open(t, handler, func() { api.Close() })
}

// open returns the store behind a handler.
func open(t *testing.T, handler http.Handler, after func()) *Store {
	t.Helper()
	listener := httptest.NewServer(handler)
	t.Cleanup(func() { listener.Close(); after() })
	s, err := Open(Config{URL: listener.URL, Token: secret, Program: "test/1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// stored returns a store in memory with the queue orders.
func stored(t *testing.T) posthaste.Store {
	t.Helper()
	store := memory.Open()
	if err := store.CreateQueue(t.Context(), "orders", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	return store
}

// count returns how many messages a store has.
func count(t *testing.T, store posthaste.Store) int {
	t.Helper()
	found, err := store.Messages(t.Context(), posthaste.MessageFilter{Queue: "orders", Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return len(found.Items)
}

// wantCode fails unless err has a code and tells no secret.
func wantCode(t *testing.T, err error, code posthaste.Code, texts ...string) {
	t.Helper()
	if posthaste.CodeOf(err) != code {
		t.Fatalf("the error is %v of code %q, want %q", err, posthaste.CodeOf(err), code)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error %q does not tell %q", err, text)
		}
	}
	if strings.Contains(fmt.Sprintf("%v %+v", err, errors.Unwrap(err)), secret) {
		t.Errorf("the error tells the token: %v", err)
	}
}

func TestCheckURL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url   string
		plain bool
		code  posthaste.Code
	}{
		{"https://mq.example.com", false, ""},
		{"https://mq.example.com:8443/posthaste/", false, ""},
		{"http://127.0.0.1:8484", false, ""},
		{"http://[::1]:8484", false, ""},
		{"http://localhost", false, ""},
		{"http://127.1.2.3", false, ""},
		{"http://mq.example.com", false, posthaste.CodeRefused},
		{"http://mq.example.com", true, ""},
		{"http://localhost.example.com", false, posthaste.CodeRefused},
		{"http://10.0.0.1", false, posthaste.CodeRefused},
		{"ftp://mq.example.com", true, posthaste.CodeInvalid},
		{"mq.example.com", true, posthaste.CodeInvalid},
		{"https://", true, posthaste.CodeInvalid},
		{"https://me:hunter2@mq.example.com", true, posthaste.CodeInvalid},
		{"https://mq.example.com?token=hunter2", true, posthaste.CodeInvalid},
		{"https://mq.example.com#hunter2", true, posthaste.CodeInvalid},
		{"https://mq example", true, posthaste.CodeInvalid},
		{"https:mq", true, posthaste.CodeInvalid},
	} {
		if _, err := CheckURL(c.url, c.plain); posthaste.CodeOf(err) != c.code || err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s, allowed %t: %v, want %q", c.url, c.plain, err, c.code)
		}
	}
	if _, err := Open(Config{URL: "https://mq.example.com", Token: "two words"}); posthaste.CodeOf(err) != posthaste.CodeInvalid || strings.Contains(err.Error(), "two words") {
		t.Errorf("a token with a space: %v", err)
	}
}

// losing loses the responses of the first requests that send. stripped removes the key by which the
// server recognizes a repetition.
func losing(first int64, stripped bool) func(http.Handler) http.Handler {
	var lost atomic.Int64
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if stripped {
				r.Header.Del(idempotencyKey)
			}
			if r.Method != http.MethodPost || lost.Add(1) > first {
				next.ServeHTTP(w, r)
				return
			}
			next.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		})
	}
}

// A send whose response is lost is repeated, and stores nothing twice. Without the key it would.
func TestLostResponseOfASend(t *testing.T) {
	t.Parallel()
	for stripped, want := range map[bool]int{false: 2, true: 4} {
		store := stored(t)
		s := serve(t, store, posthaste.ScopeAdmin, losing(1, stripped))
		sent, err := s.Send(t.Context(), posthaste.Message{Queue: "orders", Payload: 1}, posthaste.Message{Queue: "orders", Payload: 2})
		if err != nil || len(sent) != 2 {
			t.Fatalf("the send ends with %v, %v", sent, err)
		}
		if got := count(t, store); got != want {
			t.Errorf("with the key removed %t there are %d messages, want %d", stripped, got, want)
		}
	}
}

// If all responses of a send are lost its outcome is unknown, and the error has the key with which
// it can be repeated.
func TestUnknownOutcomeOfASend(t *testing.T) {
	t.Parallel()
	store := stored(t)
	proxy := losing(1+int64(len(repeats)), false)
	s := serve(t, store, posthaste.ScopeAdmin, proxy)
	_, err := s.Send(t.Context(), posthaste.Message{Queue: "orders", Payload: 1})
	wantCode(t, err, posthaste.CodeOutcomeUnknown, "--idempotency-key ")
	_, rest, _ := strings.Cut(err.Error(), "--idempotency-key ")
	key, _, _ := strings.Cut(rest, " ")
	sent, replayed, err := s.SendOnce(t.Context(), posthaste.Idempotency{Key: key}, posthaste.Message{Queue: "orders", Payload: 1})
	if err != nil || !replayed || len(sent) != 1 || count(t, store) != 1 {
		t.Errorf("repeated with the key %q: %v, replayed %t, %v; %d messages", key, sent, replayed, err, count(t, store))
	}
}

// A server that is not there is unavailable, whatever the call.
func TestUnreachableServer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	s, err := Open(Config{URL: "http://" + address, Token: secret})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Queues(t.Context())
	wantCode(t, err, posthaste.CodeUnavailable, address)
	_, err = s.Send(t.Context(), posthaste.Message{Queue: "orders", Payload: 1})
	wantCode(t, err, posthaste.CodeUnavailable, address)
	wantCode(t, s.DropQueue(t.Context(), "orders", posthaste.DropOptions{}), posthaste.CodeUnavailable, address)

	untrusted := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a request was sent to a server with an unknown certificate")
	}))
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	defer untrusted.Close()
	if s, err = Open(Config{URL: untrusted.URL, Token: secret}); err != nil {
		t.Fatal(err)
	}
	_, err = s.Send(t.Context(), posthaste.Message{Queue: "orders", Payload: 1})
	wantCode(t, err, posthaste.CodeUnavailable, "certificate")
}

// Bytes that JSON cannot have are refused. It would replace them, and the call would be about
// another text.
func TestInvalidTexts(t *testing.T) {
	t.Parallel()
	s := serve(t, stored(t), posthaste.ScopeAdmin, nil)
	const text = "a\xff"
	wantCode(t, s.Pause(t.Context(), posthaste.OfKey{Queue: "orders", Key: text}, posthaste.PauseOptions{}), posthaste.CodeInvalid, "UTF-8")
	_, err := s.Erase(t.Context(), text, 0)
	wantCode(t, err, posthaste.CodeInvalid, "UTF-8")
	_, err = s.Discard(t.Context(), posthaste.DeadLetterFilter{Term: text})
	wantCode(t, err, posthaste.CodeInvalid, "UTF-8")
	_, err = s.Messages(t.Context(), posthaste.MessageFilter{Term: text})
	wantCode(t, err, posthaste.CodeInvalid, "UTF-8")
}

// The loss of a response leaves what changes something unknown, and not what only reads.
func TestLostResponse(t *testing.T) {
	t.Parallel()
	s := open(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), func() {})
	_, err := s.Messages(t.Context(), posthaste.MessageFilter{Term: "ada@example.com"})
	wantCode(t, err, posthaste.CodeUnavailable)
	if strings.Contains(err.Error(), "ada") {
		t.Errorf("the error tells the term: %v", err)
	}
	wantCode(t, s.DropQueue(t.Context(), "orders", posthaste.DropOptions{}), posthaste.CodeOutcomeUnknown, "may or may not")
	_, err = s.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "orders"}, Max: 1, Lease: time.Second})
	wantCode(t, err, posthaste.CodeOutcomeUnknown, "redelivered after the lease")
}

// What other servers answer is no answer of Posthaste.
func TestForeignResponses(t *testing.T) {
	t.Parallel()
	elsewhere := open(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a redirect was followed, with Authorization %q", r.Header.Get("Authorization"))
	}), func() {})
	for status, want := range map[int][2]posthaste.Code{ // of reading, and of a change
		http.StatusNotFound:              {posthaste.CodeInvalid, posthaste.CodeInvalid},
		http.StatusRequestEntityTooLarge: {posthaste.CodeTooLarge, posthaste.CodeTooLarge},
		http.StatusTemporaryRedirect:     {posthaste.CodeInvalid, posthaste.CodeInvalid},
		http.StatusFound:                 {posthaste.CodeInvalid, posthaste.CodeInvalid},
		http.StatusBadGateway:            {posthaste.CodeUnavailable, posthaste.CodeOutcomeUnknown},
		http.StatusGatewayTimeout:        {posthaste.CodeUnavailable, posthaste.CodeOutcomeUnknown},
	} {
		s := open(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", elsewhere.base.String())
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(status)
			_, _ = w.Write([]byte("<h1>nginx</h1>"))
		}), func() {})
		_, err := s.Queues(t.Context())
		wantCode(t, err, want[0], fmt.Sprint(status))
		wantCode(t, s.DropQueue(t.Context(), "orders", posthaste.DropOptions{}), want[1], fmt.Sprint(status))
	}
	s := open(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<h1>It works!</h1>")) }), func() {})
	_, err := s.Queues(t.Context())
	wantCode(t, err, posthaste.CodeUnsupported, "cannot be read")
}

// A call waits as long as a server that limits the rate says, unless that is too long.
func TestThrottled(t *testing.T) {
	t.Parallel()
	busy := func(first int64, after string) func(http.Handler) http.Handler {
		var calls atomic.Int64
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if calls.Add(1) > first {
					next.ServeHTTP(w, r)
					return
				}
				w.Header().Set("Retry-After", after)
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(http.StatusTooManyRequests)
				_, _ = w.Write([]byte(`{"code":"too_many_requests","detail":"too many requests from this token"}`))
			})
		}
	}
	store := stored(t)
	s := serve(t, store, posthaste.ScopeAdmin, busy(2, "0"))
	if _, err := s.Send(t.Context(), posthaste.Message{Queue: "orders", Payload: 1}); err != nil || count(t, store) != 1 {
		t.Errorf("after two waits: %v, %d messages", err, count(t, store))
	}
	_, err := serve(t, store, posthaste.ScopeAdmin, busy(1, "60")).Queues(t.Context())
	wantCode(t, err, "too_many_requests", "too many requests")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := serve(t, store, posthaste.ScopeAdmin, busy(1, "20")).Queues(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

// A receive waits at the server for the first message, and ends with its context, which leaves the
// messages to others.
func TestReceiveWithin(t *testing.T) {
	t.Parallel()
	store := stored(t)
	waiting := make(chan struct{}, 10)
	s := serve(t, store, posthaste.ScopeAdmin, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			waiting <- struct{}{}
			next.ServeHTTP(w, r)
		})
	})
	request := posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "orders"}, Max: 10, Lease: time.Minute}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-waiting; cancel() }()
	if _, err := s.ReceiveWithin(ctx, request, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
	go func() {
		<-waiting
		if _, err := store.Send(t.Context(), posthaste.Message{Queue: "orders", Payload: 1}); err != nil {
			t.Error(err)
		}
	}()
	got, err := s.ReceiveWithin(t.Context(), request, 2*time.Minute)
	if err != nil || len(got.Deliveries) != 1 || string(got.Deliveries[0].Payload) != "1" {
		t.Errorf("it ends with %+v, %v", got, err)
	}
	if got, err := s.ReceiveWithin(t.Context(), request, 10*time.Millisecond); err != nil || len(got.Deliveries) != 0 {
		t.Errorf("without a message: %+v, %v", got, err)
	}
}

// Lists are read to their end, and pages continue where the one before ended.
func TestPages(t *testing.T) {
	t.Parallel()
	store := stored(t)
	for i := range maxListed {
		if err := store.CreateQueue(t.Context(), fmt.Sprintf("q%d", i), posthaste.QueueOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s := serve(t, store, posthaste.ScopeAdmin, nil)
	queues, err := s.Queues(t.Context())
	if err != nil || len(queues) != maxListed+1 {
		t.Errorf("there are %d queues, %v", len(queues), err)
	}
	for i := range 5 {
		if _, err := s.Send(t.Context(), posthaste.Message{Queue: "orders", Payload: i}); err != nil {
			t.Fatal(err)
		}
	}
	var ids []posthaste.MessageID
	for f := (posthaste.MessageFilter{Queue: "orders", Limit: 2}); ; {
		page, err := s.Messages(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Items {
			ids = append(ids, m.ID)
		}
		if f.Before = page.Next; f.Before == 0 {
			break
		}
	}
	if fmt.Sprint(ids) != "[5 4 3 2 1]" {
		t.Errorf("the pages have %v", ids)
	}
}

// A token without the scope to see payloads gets messages without them, which say so.
func TestHiddenPayloads(t *testing.T) {
	t.Parallel()
	store := stored(t)
	sent, err := store.Send(t.Context(), posthaste.Message{Queue: "orders", Payload: "private", Terms: []string{"ada"}})
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, store, posthaste.ScopeRead, nil)
	m, err := s.Message(t.Context(), sent[0].ID)
	if err != nil || !m.PayloadHidden || m.Payload != nil || m.Terms != nil {
		t.Errorf("the message is %+v, %v", m, err)
	}
	wantCode(t, s.DropQueue(t.Context(), "orders", posthaste.DropOptions{}), posthaste.CodeDenied, `"admin"`)
}

// What the API lacks is not supported, and the error names the way out.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	s, err := Open(Config{URL: "https://mq.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.CreateToken(t.Context(), posthaste.Token{})
	wantCode(t, err, posthaste.CodeUnsupported, "does not create tokens", "--database-url")
	_, err = s.Settle(t.Context(), []posthaste.Settlement{{Delivery: 1, Outcome: posthaste.OutcomeLost}})
	wantCode(t, err, posthaste.CodeUnsupported, "lost")
	_, err = s.Send(t.Context(), posthaste.Message{Queue: "a", Payload: 1}, posthaste.Message{Queue: "b", Payload: 1})
	wantCode(t, err, posthaste.CodeUnsupported, "one queue")
}
