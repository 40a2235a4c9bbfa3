package server

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/memory"
)

func TestCheckListen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		addr  string
		token bool
		want  posthaste.Code
	}{
		{"127.0.0.1:8484", false, ""}, {"127.9.9.9:0", false, ""}, {"[::1]:8484", false, ""}, {"localhost:8484", false, ""},
		{":8484", false, posthaste.CodeRefused}, {"0.0.0.0:8484", false, posthaste.CodeRefused}, {"[::]:8484", false, posthaste.CodeRefused},
		{"192.0.2.1:80", false, posthaste.CodeRefused}, {"0.0.0.0:8484", true, ""}, {"8484", true, posthaste.CodeInvalid}, {"", false, posthaste.CodeInvalid},
	} {
		err := CheckListen(c.addr, c.token)
		if posthaste.CodeOf(err) != c.want {
			t.Errorf("%q, token %v: %v", c.addr, c.token, err)
		}
		if c.want == posthaste.CodeRefused && (!strings.Contains(err.Error(), "--token") || !strings.Contains(err.Error(), "--listen")) {
			t.Errorf("%q: the message names no flag: %v", c.addr, err)
		}
	}
}

type served struct {
	*api
	stop  context.CancelFunc
	ended chan error
}

// serve serves an engine in memory on a port of this machine.
func serve(t *testing.T, grace time.Duration, engine *hooked) *served {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, listener, &http.Client{}, grace, engine)
}

// servePiped is serve for tests in a bubble.
func servePiped(t *testing.T, grace time.Duration, engine *hooked) *served {
	t.Helper()
	listener := newPipes()
	s := serveOn(t, listener, listener.client(), grace, engine)
	s.dial = listener.dial
	return s
}

func serveOn(t *testing.T, listener net.Listener, client *http.Client, grace time.Duration, engine *hooked) *served {
	t.Helper()
	engine.Store = memory.Open()
	server, err := New(Config{Engine: engine, LookInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &served{&api{t: t, engine: engine, server: server, url: "http://" + listener.Addr().String(), client: client}, stop, make(chan error, 1)}
	go func() { s.ended <- server.Serve(ctx, listener, grace) }()
	t.Cleanup(func() {
		client.CloseIdleConnections()
		stop()
	})
	s.queue("orders")
	return s
}

// Stopping answers those who wait at once, and lets finish what runs.
func TestServeStopsGracefully(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		sending, finish := make(chan struct{}), make(chan struct{})
		engine := &hooked{}
		engine.send = func(ctx context.Context, m ...posthaste.Message) ([]posthaste.Sent, error) {
			close(sending)
			<-finish
			return engine.Store.Send(ctx, m...)
		}
		s := servePiped(t, time.Minute, engine)
		waits := s.receiveLater(t.Context(), `{"wait":"5m"}`)
		eventually(t, "it waits", func() bool { return s.server.gatherer.tried("orders") == 1 })
		sent := make(chan int, 1)
		go func() {
			got, _ := s.try(t.Context(), "POST", "/v1/queues/orders/messages", `{"payload":1}`)
			sent <- got.status
		}()
		<-sending
		s.stop()
		if r := <-waits; r.err != nil || len(r.got) != 0 {
			t.Fatalf("%+v", r)
		}
		close(finish)
		if status := <-sent; status != 201 {
			t.Fatalf("the request that ran was answered %d", status)
		}
		if err := <-s.ended; err != nil {
			t.Fatal(err)
		}
		if _, err := s.try(t.Context(), "GET", "/healthz", ""); err == nil {
			t.Fatal("it still answers")
		}
		s.server.Close()
	})
}

func TestServeCutsOffWhatOutlivesTheGrace(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		sending := make(chan struct{})
		engine := &hooked{}
		engine.send = func(ctx context.Context, _ ...posthaste.Message) ([]posthaste.Sent, error) {
			close(sending)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		const grace = 10 * time.Second // shorter than an operation may take
		s := servePiped(t, grace, engine)
		go func() { _, _ = s.try(t.Context(), "POST", "/v1/queues/orders/messages", `{"payload":1}`) }()
		<-sending
		s.stop()
		stopped := time.Now()
		if err := <-s.ended; posthaste.CodeOf(err) != posthaste.CodeRefused {
			t.Fatal(err)
		}
		if took := time.Since(stopped); took != grace {
			t.Errorf("cut off after %s, want %s", took, grace)
		}
	})
}

func TestHA5Readiness(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		var ready atomic.Pointer[func(context.Context) error]
		a := newAPI(t, func(_ *Config, h *hooked) { h.ready = func(ctx context.Context) error { return (*ready.Load())(ctx) } })
		never := make(chan struct{})
		defer close(never)
		const promised = 5 * time.Second
		for _, c := range []struct {
			ready  func(context.Context) error
			status int
			code   posthaste.Code
		}{
			{func(context.Context) error { return nil }, 200, ""},
			{func(context.Context) error { return &posthaste.Error{Code: posthaste.CodeSchemaOld, Message: "old"} }, 503, posthaste.CodeSchemaOld},
			{func(context.Context) error { return errors.New("dial tcp: password") }, 503, posthaste.CodeUnavailable},
			{func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, 503, posthaste.CodeUnavailable},
			{func(context.Context) error { <-never; return nil }, 503, posthaste.CodeUnavailable},
			{func(context.Context) error { return nil }, 200, ""},
		} {
			ready.Store(&c.ready)
			start := time.Now()
			got := a.call("GET", "/readyz", "").want(t, c.status)
			if took := time.Since(start); took > promised {
				t.Errorf("answered after %s", took)
			}
			if c.status == 503 {
				if p := got.problem(t); p.Code != c.code || strings.Contains(p.Detail, "password") || got.header.Get("Retry-After") == "" {
					t.Errorf("%s", got.body)
				}
			}
			a.call("GET", "/healthz", "").want(t, 200)
		}
	})
}

// A client that does not finish its header does not keep its connection.
func TestSlowHeaderIsCutOff(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s := servePiped(t, time.Minute, &hooked{})
		conn, err := s.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		began := time.Now()
		if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n"); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(began.Add(patience))
		if _, err := io.ReadAll(conn); err != nil {
			t.Fatalf("the connection stays open: %v", err)
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("cut off after %s, want 10 s", took)
		}
	})
}
