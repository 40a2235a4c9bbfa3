// Package faultproxy is a TCP proxy that injects faults, for tests of clients of brokers and
// stores.
package faultproxy

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Proxy forwards connections to a server. Its methods are safe for concurrent use.
type Proxy struct {
	server   string
	listener net.Listener
	// request reports whether data of a client contains a request that Cut and Hang wait for.
	request func([]byte) bool
	all     sync.WaitGroup

	mu     sync.Mutex
	links  map[*link]bool
	closed bool
	refuse bool
	before *fault        // for the next request, which is not forwarded
	after  *fault        // for the next request, whose response is not forwarded
	hang   chan struct{} // closed at the next request
	resume chan struct{} // closed when hanging connections may continue
}

// link is one connection through the proxy.
type link struct{ client, server net.Conn }

func (l *link) close() {
	l.client.Close()
	l.server.Close()
}

// fault is a single fault of a connection.
type fault struct {
	do  func()        // called first; may be nil
	met chan struct{} // closed when the connection is cut
}

// meet calls do and cuts the connection. It closes met last, so that the next fault cannot
// affect the connection that has ended.
func (f *fault) meet(l *link) {
	if f.do != nil {
		f.do()
	}
	l.close()
	close(f.met)
}

// Start starts a proxy as [New] does, and closes it when the test ends.
func Start(t testing.TB, server string, request func([]byte) bool) *Proxy {
	t.Helper()
	p, err := New(server, request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// New starts a proxy for server, "host:port". request reports which data of clients is a
// request; nil: all.
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

// Address returns the address for clients, "host:port".
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

// Connections returns the number of current connections.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// CutAll cuts the current connections.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Refuse turns closing of new connections on or off.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// CutBefore cuts the connection of the next request before the server gets it. cut is closed
// then.
func (p *Proxy) CutBefore() (cut <-chan struct{}) { return p.strike(&p.before, nil) }

// CutAfter cuts the connection of the next request after the server has responded and before
// the client gets the response. cut is closed then.
func (p *Proxy) CutAfter() (cut <-chan struct{}) { return p.strike(&p.after, nil) }

// KillBefore is CutBefore, and calls kill before the client can notice the cut.
func (p *Proxy) KillBefore(kill func()) (cut <-chan struct{}) { return p.strike(&p.before, kill) }

// KillAfter is CutAfter, and calls kill before the client can notice the cut.
func (p *Proxy) KillAfter(kill func()) (cut <-chan struct{}) { return p.strike(&p.after, kill) }

func (p *Proxy) strike(where **fault, do func()) (cut <-chan struct{}) {
	f := &fault{do, make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	*where = f
	return f.met
}

// Hang forwards nothing from the next request on, including that request, until release is
// called. reached is closed when it hangs.
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
	refuse = p.refuse || p.closed // Refuse and CutAll may have been called meanwhile
	p.links[l] = true
	p.mu.Unlock()
	defer func() {
		l.close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	}()
	if refuse {
		return
	}
	var armed atomic.Pointer[fault] // set if this link's next response is to be cut
	var back sync.WaitGroup
	back.Go(func() { l.respond(&armed) })
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			break
		}
		if p.request(buffer[:n]) && p.disturb(l, &armed) {
			break
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			break
		}
	}
	l.close()
	back.Wait()
	if f := armed.Swap(nil); f != nil { // it ended in another way, so the next link's response is cut
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.after == nil {
			p.after = f
		}
	}
}

// respond copies the server's responses to the client until the link ends, or cuts it at the
// response that an armed fault strikes.
func (l *link) respond(armed *atomic.Pointer[fault]) {
	defer l.close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buffer)
		if err != nil {
			return
		}
		if f := armed.Swap(nil); f != nil {
			f.meet(l)
			return
		}
		if _, err := l.client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// disturb applies the pending faults to a request of a link. cut says that the link has ended.
func (p *Proxy) disturb(l *link, armed *atomic.Pointer[fault]) (cut bool) {
	p.mu.Lock()
	if f := p.before; f != nil {
		p.before = nil
		p.mu.Unlock()
		f.meet(l)
		return true
	}
	if p.after != nil {
		armed.Store(p.after)
		p.after = nil
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
