package server

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// onServer reports whether a test runs on Redis or NATS, as one of TestOnRedis or TestOnNATS.
func onServer(t *testing.T) bool {
	return strings.HasPrefix(t.Name(), "TestOnRedis/") || strings.HasPrefix(t.Name(), "TestOnNATS/")
}

// inBubble runs a test in a bubble of testing/synctest: its clock moves only when all
// of its goroutines wait. Bounds on times are exact there, and waiting costs nothing.
// On a server the test runs in real time, because a bubble cannot wait for a socket.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if onServer(t) {
		test(t)
		return
	}
	synctest.Test(t, test)
}

// pipes is a listener for connections within the process, which a bubble can wait for.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func newPipes() *pipes {
	return &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept implements [net.Listener].
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accepted:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// loopback is the address of both ends of all connections.
var loopback = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}

// Addr implements [net.Listener].
func (p *pipes) Addr() net.Addr { return loopback }

// localPipe is an end of a pipe that claims to be of this machine, as TCP on loopback is.
type localPipe struct{ net.Conn }

func (localPipe) RemoteAddr() net.Addr { return loopback }

// dial connects to the listener.
func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.accepted <- localPipe{server}:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// client sends all requests to the listener, whatever their address.
func (p *pipes) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return p.dial(ctx) },
	}}
}

// handle serves requests until the test ends.
func (p *pipes) handle(t *testing.T, handler http.Handler, client *http.Client) {
	s := &http.Server{Handler: handler}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(p) }()
	t.Cleanup(func() {
		client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("requests still run at the end of the test: %v", err)
			_ = s.Close()
		}
		<-ended
	})
}
