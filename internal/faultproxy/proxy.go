// Package faultproxy is a TCP proxy that disturbs what passes through it, for
// tests of what speaks to brokers and stores.
package faultproxy

import (
	"net"
	"sync"
	"sync/atomic"
)

// Proxy passes connections on to a server. Its methods are safe for concurrent use.
type Proxy struct {
	server   string
	listener net.Listener
	// request says whether a piece of what a client sends holds what Cut and Hang
	// wait for.
	request func([]byte) bool
	all     sync.WaitGroup

	mu     sync.Mutex
	links  map[*link]bool
	closed bool
	refuse bool
	cut    func()        // called once at the next request, which is not passed on
	after  func()        // called once when a request was passed on and before its answer is
	hang   chan struct{} // closed at the next request
	resume chan struct{} // closed when what hangs may go on
}

// link is one connection through the proxy.
type link struct{ client, server net.Conn }

func (l *link) close() {
	l.client.Close()
	l.server.Close()
}

// New starts a proxy before server, "host:port". request says which pieces of what
// clients send are requests; nil: all of them.
func New(server string, request func([]byte) bool) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	if request == nil {
		request = func([]byte) bool { return true }
	}
	p := &Proxy{server: server, listener: listener, request: request, links: map[*link]bool{}}
	p.all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.all.Go(func() { p.serve(client) })
		}
	})
	return p, nil
}

// Address is where clients connect to, "host:port".
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Close ends the proxy and its connections.
func (p *Proxy) Close() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.goOn()
	p.mu.Unlock()
	p.CutAll()
	p.all.Wait()
}

// Connections counts those that are there.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// CutAll cuts the connections that are there.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Refuse closes new connections at once, or no longer.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// CutBefore cuts the connection of the next request, which the server does not get.
// cut is closed then.
func (p *Proxy) CutBefore() (cut <-chan struct{}) {
	done := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = func() { close(done) }
	return done
}

// CutAfter cuts the connection of the next request when the server has answered
// it, and before the client gets that answer. cut is closed then.
func (p *Proxy) CutAfter() (cut <-chan struct{}) {
	done := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after = func() { close(done) }
	return done
}

// Hang passes on nothing from the next request on, that one included, until
// release. reached is closed when it hangs.
func (p *Proxy) Hang() (reached <-chan struct{}, release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hang, p.resume = make(chan struct{}), make(chan struct{})
	return p.hang, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.goOn()
	}
}

func (p *Proxy) goOn() {
	if p.resume != nil {
		close(p.resume)
		p.hang, p.resume = nil, nil
	}
}

func (p *Proxy) serve(client net.Conn) {
	p.mu.Lock()
	refuse := p.refuse || p.closed
	p.mu.Unlock()
	server, err := net.Dial("tcp", p.server)
	if err != nil || refuse {
		client.Close()
		if server != nil {
			server.Close()
		}
		return
	}
	l := &link{client, server}
	p.mu.Lock()
	p.links[l] = true
	p.mu.Unlock()
	defer func() {
		l.close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	}()
	var armed atomic.Pointer[func()] // told, if the answer to be cut is this link's
	var back sync.WaitGroup
	back.Go(func() {
		defer l.close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			if err != nil {
				return
			}
			if told := armed.Swap(nil); told != nil {
				l.close() // first, so that the next fault does not meet what has ended
				(*told)()
				return
			}
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
	})
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			break
		}
		if p.request(buffer[:n]) && p.disturb(func(told func()) { armed.Store(&told) }) {
			break
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			break
		}
	}
	l.close()
	back.Wait()
	if told := armed.Swap(nil); told != nil { // it ended in another way, so the next link's is cut
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.after == nil {
			p.after = *told
		}
	}
}

// disturb does what was asked for with a request; cut says that its connection
// shall end.
func (p *Proxy) disturb(arm func(told func())) (cut bool) {
	p.mu.Lock()
	if told := p.cut; told != nil {
		p.cut = nil
		p.mu.Unlock()
		told()
		return true
	}
	if told := p.after; told != nil {
		p.after = nil
		arm(told)
	}
	hang, resume := p.hang, p.resume
	if hang != nil {
		select {
		case <-hang:
		default:
			close(hang)
		}
	}
	p.mu.Unlock()
	if hang != nil {
		<-resume
	}
	return false
}
