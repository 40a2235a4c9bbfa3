//go:build unix

package devbroker

import (
	"io"
	"net"
	"sync"
)

// route forwards connections to a server until it is cut.
type route struct {
	server   string
	listener net.Listener
	all      sync.WaitGroup

	mu    sync.Mutex
	off   bool
	conns map[net.Conn]bool
}

func newRoute(server string) (*route, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &route{server: server, listener: listener, conns: map[net.Conn]bool{}}
	r.all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			r.all.Go(func() { r.forward(conn) })
		}
	})
	return r, nil
}

func (r *route) address() string { return r.listener.Addr().String() }

// cut ends all connections and refuses new ones, or forwards them again.
func (r *route) cut(off bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.off = off
	for conn := range r.conns {
		if off {
			conn.Close()
		}
	}
}

func (r *route) close() {
	r.listener.Close()
	r.cut(true)
	r.all.Wait()
}

// opened keeps a connection that cut closes. It reports whether the route is open.
func (r *route) opened(conn net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns[conn] = true
	return !r.off
}

func (r *route) forget(conn net.Conn) {
	conn.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, conn)
}

func (r *route) forward(client net.Conn) {
	defer r.forget(client)
	if !r.opened(client) {
		return
	}
	server, err := net.Dial("tcp", r.server)
	if err != nil {
		return
	}
	defer r.forget(server)
	if !r.opened(server) {
		return
	}
	r.all.Go(func() {
		_, _ = io.Copy(client, server)
		client.Close()
	})
	_, _ = io.Copy(server, client)
}
